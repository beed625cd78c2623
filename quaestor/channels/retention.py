"""Retention: old results, records and dead letters go, and the subscriptions of brokers whose lease is long over.

Small files are joined. Records stay as long as a channel has not examined them. Results go after their time in any case; a
broker that has not acknowledged them is reported first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.delivery import letters_of
from quaestor.channels.brokers.registry import Broker, Brokers
from quaestor.channels.datasets import Dataset
from quaestor.channels.definitions import Definition, Definitions, State
from quaestor.channels.feeds.dead_letters import FeedLetters
from quaestor.channels.feeds.definitions import FeedDefinition
from quaestor.channels.pages import ResultPages
from quaestor.channels.runs.results import Results
from quaestor.channels.statements.model import CreateDataset, Kind
from quaestor.channels.subscriptions import Subscriptions
from quaestor.channels.versions import EXPIRED
from quaestor.clock import Clock, system_clock
from quaestor.errors import QuaestorError
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.maintenance import compact, groups, tidy
from quaestor.tables.versioned import VersionedTable

_SECOND: Final = 1_000_000
_LOOK_S: Final = 60.0
_GRACE_S: Final = 3_600.0
"""Time for which files that were dropped stay for their readers."""
_SETTLED: Final = 3_600 * _SECOND
"""Age of files that are joined: runs and readers have mostly passed them by."""
_JOINED_BYTES: Final = 64 << 20
_FEWEST_JOINED: Final = 64
"""Small files that are joined at a time: fewer would be written again too often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionParts:
    """Parts of the retention.

    keep_s: seconds for which results are kept; 0: for ever. Subscriptions stay as long after the lease of their broker.
    """

    catalogue: Catalogue
    definitions: Definitions
    brokers: Brokers
    acknowledgements: Acknowledgements
    pages: ResultPages
    telemetry: Telemetry
    keep_s: float
    clock: Clock = system_clock
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class Retention:
    """Retention of the datasets, results and subscriptions of one folder. One process at a time applies it."""

    def __init__(self, parts: RetentionParts) -> None:
        self._parts = parts

    async def keep_running(self) -> None:
        """Apply the retention at intervals, until cancelled."""
        while True:
            await asyncio.to_thread(self.apply)
            await self._parts.pause(_LOOK_S)

    def apply(self) -> None:
        """Drop what is too old now. A failure is reported, and the rest goes on."""
        parts, now = self._parts, self._parts.clock() * 1_000
        try:
            definitions = [entry for entry in parts.definitions.all() if entry.state in (State.READY, State.PAUSED)]
            brokers = parts.brokers.all()
        except QuaestorError as error:
            parts.telemetry.failure("channels", "channels.retention_failed", error)
            return
        channels = [entry.name for entry in definitions if entry.kind is Kind.CHANNEL]
        keep = int(parts.keep_s * _SECOND)
        for channel in channels if keep else ():
            self._attempt(channel, partial(self._drop_results, channel, brokers, now - keep))
        for broker in brokers if keep else ():
            if broker.has_expired(now - keep):
                self._attempt(broker.name, partial(self._drop_subscriptions, broker, channels))
        for definition in definitions:
            self._attempt(definition.name, partial(self._drop_records, definition, channels, now))
            self._attempt(definition.name, partial(self._join_files, definition, channels, now))
            if keep and definition.kind is Kind.FEED:
                self._attempt(definition.name, partial(self._drop_letters, definition.name, now - keep))
        if keep:
            self._attempt("dead letters", partial(self._drop_messages, now - keep))

    def _attempt(self, thing: str, work: Callable[[], None]) -> None:
        try:
            work()
        except QuaestorError as error:
            self._parts.telemetry.failure("channels", "channels.retention_failed", error, thing=thing)

    def _drop_results(self, channel: str, brokers: Sequence[Broker], upto: int) -> None:
        results = Results(self._parts.catalogue, channel)
        if not results.has_before(upto):
            return
        for broker in brokers:
            acknowledged = self._parts.acknowledgements.upto(broker.name, channel)
            pages = self._parts.pages.after(channel, broker.name, acknowledged, 1)
            if pages and pages[0].run <= upto:
                self._parts.telemetry.failure(
                    "delivery",
                    "channels.unacknowledged_dropped",
                    f"broker {broker.name} has not acknowledged results of channel {channel} that are too old to be kept",
                    broker=broker.name,
                    channel=channel,
                )
        results.retain(upto)
        self._tidy(results.table)

    def _drop_subscriptions(self, broker: Broker, channels: Sequence[str]) -> None:
        """Drop the subscriptions of a broker that is long silent."""
        for channel in channels:
            number = Subscriptions(self._parts.catalogue, channel, ()).remove_at(broker.name)
            if number:
                self._parts.telemetry.failure(
                    "delivery",
                    "channels.subscriptions_dropped",
                    f"{number} subscriptions of channel {channel} went with the lease of broker {broker.name}",
                    broker=broker.name,
                    channel=channel,
                )

    def _drop_records(self, definition: Definition, channels: Sequence[str], now: int) -> None:
        """Drop the records of a dataset that are too old and that every channel has examined."""
        if definition.kind is not Kind.DATASET:
            return
        statement = definition.statement
        assert isinstance(statement, CreateDataset)
        if statement.retain_us is None:
            return
        dataset = Dataset.open(self._parts.catalogue, definition.name)
        self._expire(dataset, self._examined(dataset, channels, now - statement.retain_us))

    def _examined(self, dataset: Dataset, channels: Sequence[str], most: int) -> list[int]:
        """Return the instant of each partition up to which every channel has examined it, and at most `most`."""
        upto = [most] * len(dataset.partitions)
        for channel in channels:
            examined = Results(self._parts.catalogue, channel).progress().bounds.get(dataset.name, upto)
            upto = [min(bounds) for bounds in zip(upto, examined, strict=True)]
        return upto

    def _drop_letters(self, feed: str, upto: int) -> None:
        """Drop the dead letters of a feed that are too old."""
        letters = FeedLetters(self._parts.catalogue, FeedDefinition(name=feed)).dataset()
        if letters is not None:
            self._expire(letters, [upto] * len(letters.partitions))

    def _drop_messages(self, upto: int) -> None:
        """Drop the dead letters of runs whose results are too old, and report them."""
        letters = letters_of(self._parts.catalogue.root)
        for letter in list(letters.list()):
            if letter.batch.run <= upto:
                letters.remove(letter)
                self._parts.telemetry.failure(
                    "delivery",
                    "channels.letters_dropped",
                    f"a dead letter of channel {letter.batch.query} was too old to be kept",
                    sink=letter.sink,
                    channel=letter.batch.query,
                )

    def _join_files(self, definition: Definition, channels: Sequence[str], now: int) -> None:
        """Join the small files of a dataset, or of the results and subscriptions of a channel, in the order of time."""
        catalogue, settled = self._parts.catalogue, now - _SETTLED
        if definition.kind is Kind.CHANNEL:
            self._join(Results(catalogue, definition.name).table, settled)
            self._join(Subscriptions(catalogue, definition.name, ()).dataset.partitions[0], settled)
        elif definition.kind is Kind.DATASET:
            dataset = Dataset.open(catalogue, definition.name)
            for table, upto in zip(dataset.partitions, self._examined(dataset, channels, settled), strict=True):
                self._join(table, upto)

    def _join(self, table: VersionedTable, upto: int) -> None:
        """Join files whose rows are not after an instant, once there are many of them."""
        snapshot = table.snapshot()
        files = {path: file for path, file in snapshot.files.items() if file.last <= upto}
        if len(files) < _FEWEST_JOINED:
            return
        for group in groups(replace(snapshot, files=files), _JOINED_BYTES):
            if len(group) >= _FEWEST_JOINED:
                compact(table.table, group, now_ms=self._parts.clock())
        self._tidy(table)

    def _expire(self, dataset: Dataset, upto: Sequence[int]) -> None:
        """Drop the records of each partition up to an instant, and the files that nobody needs any more."""
        if expire(dataset, upto):
            for table in dataset.partitions:
                self._tidy(table)

    def _tidy(self, table: VersionedTable) -> None:
        tidy(table.table, grace_s=_GRACE_S, now_ms=self._parts.clock())


def expire(dataset: Dataset, upto: Sequence[int]) -> int:
    """Drop the records whose latest version is not after an instant; return the number of files that go.

    upto: an instant for each partition. Expiry never goes back. `tidy` deletes the files later. Raises DependencyError.
    """
    return sum(_expire(table, instant) for table, instant in zip(dataset.partitions, upto, strict=True))


def _expire(table: VersionedTable, instant: int) -> int:
    gone: tuple[str, ...] = ()

    def decide(now: Snapshot) -> Change | None:
        nonlocal gone
        gone = ()
        before = int(now.notes.get(EXPIRED, -1))
        if instant <= before or not any(file.first <= instant and file.last > before for file in now.files.values()):
            return None
        gone = tuple(path for path, file in now.files.items() if file.last <= instant)
        return Change(remove=gone, notes={EXPIRED: str(instant)})

    table.publish(decide)
    return len(gone)
