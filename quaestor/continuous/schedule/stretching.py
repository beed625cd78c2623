"""Stretching of periods under load: a factor that doubles while queries run late, and halves while they run in time."""

from __future__ import annotations

from typing import Final

LARGEST: Final = 64
_LOOK_EVERY: Final = 10_000_000
"""Microseconds between two looks at the lateness."""
_LATE: Final = 1.0
_IN_TIME: Final = 0.25


class Stretching:
    """Factor of all periods: a power of two, so that stretched instants are multiples of the period."""

    def __init__(self) -> None:
        self.factor = 1
        self._worst = 0.0
        self._looked: int | None = None

    def note(self, lateness: int, length: int, now: int) -> None:
        """Note that a query began so late, beside the length of its stretched period, and adapt the factor."""
        if self._looked is None or now < self._looked:  # a clock may go back
            self._worst, self._looked = 0.0, now
        self._worst = max(self._worst, lateness / length)
        if now - self._looked < _LOOK_EVERY:
            return
        if self._worst > _LATE:
            self.factor = min(LARGEST, self.factor * 2)
        elif self._worst < _IN_TIME:
            self.factor = max(1, self.factor // 2)
        self._worst, self._looked = 0.0, now
