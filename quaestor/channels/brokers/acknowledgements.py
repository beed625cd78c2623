"""Acknowledgements: by channel and broker, the run up to which the broker has confirmed all results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quaestor.channels.pages import ResultPages
from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.log import Table
from quaestor.tables.storage import LogStorage

_MOST_AHEAD: Final = 1_000
"""Runs that may be acknowledged before an older run."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """State of one broker of a channel.

    upto: run up to which everything is acknowledged.
    ahead: later runs that are acknowledged, while an older run is not.
    notified: run up to which the broker was notified of results to fetch.
    """

    upto: int = 0
    ahead: tuple[int, ...] = ()
    notified: int = 0


class Acknowledgements:
    """Acknowledgements of one place. Every change is durable when its method returns. Methods raise DependencyError."""

    def __init__(self, storage: LogStorage, *, clock: Clock = system_clock) -> None:
        self._log = Table(storage.below("_acknowledgements"))
        self._clock = clock

    def of(self, broker: str, channel: str) -> Acknowledged:
        """Return the state of a broker of a channel."""
        return _state(self._log.snapshot(), broker, channel)

    def upto(self, broker: str, channel: str) -> int:
        """Return the highest run up to which all results are acknowledged; 0: none."""
        return self.of(broker, channel).upto

    def advance(self, broker: str, channel: str, run: int) -> int:
        """Acknowledge all runs up to a run; return the highest acknowledged run, which never goes back."""
        return self._changed(
            broker,
            channel,
            lambda state: Acknowledged(
                max(state.upto, run),
                tuple(other for other in state.ahead if other > max(state.upto, run)),
                state.notified,
            ),
        ).upto

    def note_notified(self, broker: str, channel: str, run: int) -> None:
        """Keep that the broker was notified of the runs up to a run."""
        self._changed(broker, channel, lambda state: Acknowledged(state.upto, state.ahead, max(state.notified, run)))

    def acknowledge(self, broker: str, channel: str, run: int, pages: ResultPages) -> int:
        """Acknowledge one run; return the highest run up to which everything is acknowledged then.

        Raises ConfigurationError for a run that does not exist yet, and for too many runs ahead of a missing one.
        """
        newest = pages.newest(channel)
        if run > newest:
            raise ConfigurationError(f"run {run} of channel {channel!r} does not exist; the newest is {newest}")

        def add(now: Acknowledged) -> Acknowledged:
            ahead = {*now.ahead, run} if run > now.upto else set(now.ahead)
            if len(ahead) > _MOST_AHEAD:
                raise ConfigurationError(
                    f"{len(ahead)} runs are acknowledged, and an older run is not: acknowledge it first"
                )
            return Acknowledged(now.upto, tuple(sorted(ahead)), now.notified)

        state = self._changed(broker, channel, add)
        upto, ahead = state.upto, set(state.ahead)
        while ahead:
            following = pages.after(channel, broker, upto, 1)
            if not following or following[0].run not in ahead:
                break
            upto = following[0].run
            ahead.discard(upto)
        return self.advance(broker, channel, upto)

    def forget(self, broker: str) -> None:
        """Forget the acknowledgements of a broker that was dropped."""
        self._log.publish(
            lambda now: Change(notes={name: None for name in now.notes if name.rpartition("/")[2] == broker}),
            now_us=self._clock() * 1_000,
        )

    def _changed(self, broker: str, channel: str, change: Callable[[Acknowledged], Acknowledged]) -> Acknowledged:
        def decide(now: Snapshot) -> Change | None:
            before = _state(now, broker, channel)
            after = change(before)
            if after == before:
                return None
            text = json.dumps([after.upto, list(after.ahead), after.notified])
            return Change(notes={_key(broker, channel): text})

        return _state(self._log.publish(decide, now_us=self._clock() * 1_000), broker, channel)


def _key(broker: str, channel: str) -> str:
    return f"{channel}/{broker}"


def _state(snapshot: Snapshot, broker: str, channel: str) -> Acknowledged:
    text = snapshot.notes.get(_key(broker, channel))
    if text is None:
        return Acknowledged()
    upto, ahead, notified = json.loads(text)
    return Acknowledged(upto, tuple(ahead), notified)
