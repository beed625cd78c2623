"""Prompt ticks: while app processes wait for their own writes, ingest says at once how far the write pipelines are complete.

An ordinary tick comes once a heartbeat. A process whose requests write puts a value beside the pipelines that says until when it
wants to know sooner. Then what was delivered is followed by a short read of the change stream. If that is empty, all events up to
the newest one are in the pipelines. If it is not, all events before the newest one are: those of a transaction share their
version, and may be spread over several reads.
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
"""How long a read waits that only makes sure that nothing comes behind what was delivered."""
_LOOK_EVERY_S: Final = 0.005
_TICK_EVERY_S: Final = 0.005
"""So that cells and apps are not kept busy with heartbeats while many write."""


class PromptTicks:
    """Decisions of one ingest. Not thread-safe.

    name: of the value that says until when somebody waits.
    owed: something was delivered of which no tick has said yet that it is complete.
    """

    def __init__(self, layer: EventLayer, name: str, clock: Clock) -> None:
        self.owed = False
        self._layer = layer
        self._name = name
        self._clock = clock
        self._wanted_until_ms = 0
        self._look_due_s = 0.0
        self._tick_due_s = 0.0

    def due(self, *, delivered: bool, newest: Version) -> Version | None:
        """The version up to which a tick is to say now that everything is in the pipelines; None: no tick. Raises
        EventLayerError.

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

    def _wanted(self) -> bool:
        now_s, now_ms = time.monotonic(), self._clock()
        if self._wanted_until_ms <= now_ms and now_s >= self._look_due_s:
            self._look_due_s = now_s + _LOOK_EVERY_S
            self._wanted_until_ms = _until_ms(self._layer.get(self._name))
        return self._wanted_until_ms > now_ms


def _until_ms(value: bytes | None) -> int:
    """A value that nobody understands is none: it costs no more than waiting for the next heartbeat."""
    if value is None:
        return 0
    try:
        return int(bson.decode(value)["until"])
    except (BSONError, KeyError, TypeError, ValueError):
        return 0
