"""A clock that tests move forward, while threads go on in true time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MovableClock:
    """The true time, moved forward. Called: in ms since the epoch, as the product asks for it."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> int:
        return (self.now() - EPOCH) // timedelta(milliseconds=1)

    def now(self) -> datetime:
        return EPOCH + timedelta(microseconds=time.time_ns() // 1_000) + self._ahead

    def advance(self, delta: timedelta) -> None:
        self._ahead += max(delta, timedelta())
