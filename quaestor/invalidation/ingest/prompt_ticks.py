"""Prompt ticks: reports without delay of how far the write pipelines are complete, while app processes wait for own writes.

An ordinary tick comes once a heartbeat. A process whose requests write puts a value beside the pipelines, with the time
until which it wants prompt ticks. Ingest reads it along with its appends, where one server holds both. Then a short read of
the change stream follows each delivery. If that read is empty, all events up to the newest one are in the pipelines.
Otherwise only the events before the newest one are. The writes of a transaction share their version, and several reads may
deliver them.
"""

from __future__ import annotations

import time
from typing import Final

import bson
from bson.errors import BSONError

from quaestor.clock import Clock
from quaestor.model import Version
from quaestor.ports import EventLayer

SHORT_READ_MS: Final = 1
"""Wait of a read that only checks that no event follows the delivered ones."""
_LOOK_EVERY_S: Final = 0.005
_TICK_EVERY_S: Final = 0.005
"""Time between two prompt ticks: heartbeats must not keep cells and apps busy while many clients write."""


class PromptTicks:
    """Decisions of one ingest about prompt ticks. Not thread-safe.

    name: name of the value with the time until which a process waits.
    owed: an event was delivered that no tick has confirmed as complete yet.
    proved_ms: the newest moment that a tick proved; 0: none.
    """

    def __init__(self, layer: EventLayer, name: str, clock: Clock) -> None:
        self.owed = False
        self.proved_ms = 0
        self.name = name
        self._layer = layer
        self._clock = clock
        self._wanted_until_ms = 0
        self._look_due_s = 0.0
        self._tick_due_s = 0.0

    def due(self, *, delivered: bool, newest: Version) -> Version | None:
        """Return the version up to which a tick may now confirm the pipelines as complete; None: no tick.

        Raises EventLayerError.

        delivered: the last read brought events; otherwise it was empty.
        newest: version of the newest event so far.
        """
        before = self.owed
        if delivered:
            self.owed = before or self._wanted()
        if not before or time.monotonic() < self._tick_due_s:
            return None
        self._tick_due_s = time.monotonic() + _TICK_EVERY_S
        self.owed = delivered
        return newest - 1 if delivered else newest

    def note(self, value: bytes | None) -> None:
        """Note the value, just read; it is not asked for again for a while."""
        self._look_due_s = time.monotonic() + _LOOK_EVERY_S
        self._wanted_until_ms = _until_ms(value)

    def _wanted(self) -> bool:
        now_ms = self._clock()
        if self._wanted_until_ms <= now_ms and time.monotonic() >= self._look_due_s:
            self.note(self._layer.get(self.name))
        return self._wanted_until_ms > now_ms


def _until_ms(value: bytes | None) -> int:
    """Return the time in a value. An unreadable value counts as none: the price is a wait for the next heartbeat."""
    if value is None:
        return 0
    try:
        return int(bson.decode(value)["until"])
    except (BSONError, KeyError, TypeError, ValueError):
        return 0
