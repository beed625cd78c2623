"""Virtual clock for tests of lifetimes: true time, moved ahead on command."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Clock that runs with true time and can be moved ahead: `Quaestor(clock=VirtualClock())`.

    Threads and connections go on in true time. The clock never goes back.
    """

    def __init__(self) -> None:
        self._ahead = timedelta()

    def __call__(self) -> int:
        """Return the present moment in milliseconds since the epoch."""
        return (self.now() - EPOCH) // timedelta(milliseconds=1)

    def now(self) -> datetime:
        """Return the present moment, in UTC."""
        return EPOCH + timedelta(microseconds=time.time_ns() // 1_000) + self._ahead

    def advance(self, step: timedelta) -> None:
        """Move the clock ahead. Raises ValueError for a negative step."""
        if step < timedelta():
            raise ValueError(f"the clock never goes back: step is {step}")
        self._ahead += step
