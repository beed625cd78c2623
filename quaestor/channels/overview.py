"""Overview of channels for operators: runs against their periods, results, brokers, feeds and dead letters. Reads the folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from quaestor.channels.administration import Channels
from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.delivery import letters_of
from quaestor.channels.brokers.registry import Broker
from quaestor.channels.datasets import Dataset
from quaestor.channels.definitions import Definition, State
from quaestor.channels.feeds.dead_letters import FeedLetters
from quaestor.channels.feeds.definitions import FeedDefinition
from quaestor.channels.runs.history import RunReport, kept_reports
from quaestor.channels.runs.results import RUN, Results
from quaestor.channels.statements.model import CreateChannel, Kind
from quaestor.continuous.delivery.batch import moment
from quaestor.continuous.schedule.periods import Every
from quaestor.errors import QuaestorError

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND


@dataclass(frozen=True, slots=True)
class _Looked:
    """Runs of a channel that hold nothing for a broker: those in (after, upto]."""

    after: int
    upto: int


class ChannelsOverview:
    """Overview of the channels of a folder. Use from one thread at a time. Methods raise DependencyError.

    A look reads the logs, and the results that a broker has not acknowledged, until the first one of them.
    """

    def __init__(self, channels: Channels) -> None:
        self._parts = channels.parts
        self._brokers = channels.brokers
        root = channels.parts.catalogue.root
        self._feeds = channels.feeds
        self._acknowledgements = Acknowledgements(root)
        self._letters = letters_of(root)
        self._looked: dict[tuple[str, str], _Looked] = {}
        self._refused: dict[str, tuple[tuple[int, ...], int]] = {}

    def look(self, *, now: int) -> dict[str, list[dict[str, Any]]]:
        """Return channels, brokers and feeds, each by name.

        now: instant.

        `late_s`: seconds since a run that is due. `lag_s`: age of the oldest run with results that a broker has not acknowledged.
        """
        letters = Counter(letter.batch.query for letter in self._letters.list())
        known = [entry for entry in self._parts.definitions.all(Kind.CHANNEL) if _works(entry)]
        return {
            "channels": [self._channel(entry, letters[entry.name], now) for entry in known],
            "brokers": [
                described
                for broker in self._brokers.all()
                for described in self._broker(broker, [entry.name for entry in known], now)
            ],
            "feeds": [self._feed(feed, now) for feed in self._feeds.all()],
        }

    def channel(self, name: str, *, limit: int = 100) -> dict[str, Any]:
        """Return the text, the newest runs and the oldest dead letters of a channel. Raises ConfigurationError."""
        definition = self._parts.definitions.get(Kind.CHANNEL, name)
        reports = kept_reports(Results(self._parts.catalogue, definition.name).table.snapshot())
        letters = [letter for letter, _ in zip(self._letters.list(definition.name), range(limit), strict=False)]
        return {
            "text": definition.text,
            "runs": [_run(report) for report in reversed(reports)],
            "dead_letters": [
                {
                    "key": letter.batch.key,
                    "rows": len(letter.batch.rows),
                    "sink": letter.sink,
                    "reason": letter.reason,
                    "error": letter.error,
                    "attempts": letter.attempts,
                }
                for letter in letters
            ],
        }

    def _channel(self, definition: Definition, dead_letters: int, now: int) -> dict[str, Any]:
        statement = definition.statement
        assert isinstance(statement, CreateChannel)
        described: dict[str, Any] = {
            "name": definition.name,
            "kind": "continuous" if statement.using is None else "repetitive",
            "push": statement.push,
            "state": definition.state.value,
            "period_s": statement.period_us / _SECOND,
            "priority": statement.priority.value,
            "dead_letters": dead_letters,
        }
        try:
            results = Results(self._parts.catalogue, definition.name)
            snapshot = results.table.snapshot()
            subscriptions = sum(self._parts.counts.by_broker(definition.name).values())
        except QuaestorError:  # dropped meanwhile
            return described | _figures([], None, definition, now) | {"subscriptions": 0, "results": 0}
        newest = results.progress(snapshot).run
        return {
            **described,
            **_figures(kept_reports(snapshot), newest, definition, now),
            "subscriptions": subscriptions,
            "results": sum(file.rows for file in snapshot.files.values()),
        }

    def _broker(self, broker: Broker, channels: list[str], now: int) -> Iterator[dict[str, Any]]:
        """Yield the broker's state on each channel with subscriptions at it; without such a channel, the broker alone."""
        described = {
            "name": broker.name,
            "url": broker.url,
            "state": _state(broker, now),
        }
        used = False
        for channel in channels:
            subscriptions = self._subscriptions(channel).get(broker.name, 0)
            if not subscriptions:
                continue
            used = True
            state = self._acknowledgements.of(broker.name, channel)
            pending = self._pending(channel, broker.name, state.upto)
            yield described | {
                "channel": channel,
                "subscriptions": subscriptions,
                "acknowledged": moment(state.upto) if state.upto else None,
                "notified": moment(state.notified) if state.notified else None,
                "lag_s": 0.0 if pending is None else max(0, now - pending) / _SECOND,
            }
        if not used:
            yield described | {
                "channel": None,
                "subscriptions": 0,
                "acknowledged": None,
                "notified": None,
                "lag_s": 0.0,
            }

    def _subscriptions(self, channel: str) -> Mapping[str, int]:
        try:
            return self._parts.counts.by_broker(channel)
        except QuaestorError:  # dropped meanwhile
            return {}

    def _pending(self, channel: str, broker: str, acknowledged: int) -> int | None:
        """Return the oldest run with results for a broker after a run; None: there is none. Empty runs are read once."""
        looked = self._looked.get((channel, broker))
        after = looked.upto if looked is not None and looked.after <= acknowledged <= looked.upto else acknowledged
        try:
            for rows in Results(self._parts.catalogue, channel).runs(after):
                own = rows.filter(pc.equal(rows.column("broker"), broker))
                if own.num_rows:
                    return int(pc.min(own.column(RUN)).as_py())
                if rows.num_rows:
                    after = int(pc.max(rows.column(RUN)).as_py())
                    self._looked[channel, broker] = _Looked(acknowledged, after)
        except QuaestorError:  # dropped meanwhile
            return None
        return None

    def _feed(self, feed: FeedDefinition, now: int) -> dict[str, Any]:
        whole = feed.described()
        described = {field: whole[field] for field in ("name", "type", "dataset", "mode", "state")}
        nothing = {"batches": 0, "rate": 0.0, "newest_s": None, "rejected": self._rejected(feed)}
        if not feed.dataset:
            return described | nothing
        try:
            dataset = Dataset.open(self._parts.catalogue, feed.dataset)
            position = dataset.newest_position(feed.place)
            files = [file for snapshot in dataset.snapshots() for file in snapshot.files.values()]
        except QuaestorError:  # dropped meanwhile
            return described | nothing
        newest = max((file.last for file in files), default=None)
        return {
            **described,
            "batches": 0 if position is None else position.number + 1,
            "rate": sum(file.rows for file in files if file.first > now - _MINUTE) / 60,
            "newest_s": None if newest is None else max(0, now - newest) / _SECOND,
            "rejected": nothing["rejected"],
        }

    def _rejected(self, feed: FeedDefinition) -> int:
        """Return the number of a feed's dead letters; counted again after a change only."""
        letters = FeedLetters(self._parts.catalogue, feed)
        try:
            dataset = Dataset.open(self._parts.catalogue, letters.name)
        except QuaestorError:
            return 0
        numbers = tuple(snapshot.number for snapshot in dataset.snapshots())
        known = self._refused.get(letters.name)
        if known is None or known[0] != numbers:
            known = self._refused[letters.name] = (numbers, len(letters.all()))
        return known[1]


def _state(broker: Broker, now: int) -> str:
    if broker.has_expired(now):
        return "lease over"
    return f"down since {moment(broker.down_since)}" if broker.is_down else broker.state.value


def _works(definition: Definition) -> bool:
    return definition.state in (State.READY, State.PAUSED)


def _figures(reports: list[RunReport], newest: int | None, definition: Definition, now: int) -> dict[str, Any]:
    """Return the figures of a channel's newest runs. The newest report may be of a run before the newest result."""
    statement = definition.statement
    assert isinstance(statement, CreateChannel)
    last = definition.created if newest is None else newest
    due = Every(statement.period_us).next(last) if definition.state is State.READY else None
    latest = reports[-1] if reports else None
    stages: Counter[str] = Counter()
    for report in reports:
        stages.update(report.seconds)
    return {
        "run": None if newest is None else moment(newest),
        "next": None if due is None else moment(max(due, now)),
        "late_s": 0.0 if due is None else max(0, now - due) / _SECOND,
        "took_s": None if latest is None else latest.took_s,
        "rows": None if latest is None else latest.rows,
        "error": "" if latest is None else latest.error,
        "runs": len(reports),
        "overruns": sum(report.is_overrun for report in reports),
        "stages_s": dict(stages),
    }


def _run(report: RunReport) -> dict[str, Any]:
    return {
        "run": moment(report.run),
        "outcome": report.outcome,
        "took_s": report.took_s,
        "period_s": report.period_s,
        "is_overrun": report.is_overrun,
        "rows": report.rows,
        "stages_s": dict(report.seconds),
        "error": report.error,
    }
