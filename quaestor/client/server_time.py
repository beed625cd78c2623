"""Latest time that the server's clock may show, derived by a client with an unreliable clock. Pure.

Suppose an answer was surely made after a moment, and carries a time. Then the server's clock showed no more than that time at the
moment. Since then no more time has passed than since the moment. Wall clock and monotonic clock may each stand still or jump
(sleep, a corrected clock). Hence the larger of both differences counts each time, and a little more, because clocks run at
different speeds.
"""

from __future__ import annotations

from dataclasses import dataclass

DRIFT = 0.001
"""Largest difference in speed of two clocks: NTP slews a clock by at most half of this."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by both clocks of this machine.

    wall_ms: since the epoch.
    monotonic_ms: since some moment in the past.
    """

    wall_ms: float
    monotonic_ms: float


class ServerTime:
    """Knowledge about the server's clock."""

    __slots__ = ("_ahead_ms", "_at", "_elapsed_ms")

    def __init__(self) -> None:
        self._ahead_ms: float | None = None
        self._elapsed_ms = 0.0
        self._at: Moment | None = None

    @property
    def known(self) -> bool:
        """Whether any answer has proved a time."""
        return self._ahead_ms is not None

    def elapsed_ms(self, now: Moment) -> float:
        """Return the longest time that may have passed since the first call.

        The time is added up call by call, so that a sleep and a later correction of the wall clock do not cancel out; only
        both between two calls would. A moment before the last call counts as that one.
        """
        if self._at is None:
            self._at = now
        elif now.monotonic_ms >= self._at.monotonic_ms:
            gone = max(now.wall_ms - self._at.wall_ms, now.monotonic_ms - self._at.monotonic_ms)
            self._elapsed_ms += gone * (1 + DRIFT)
            self._at = now
        return self._elapsed_ms

    def latest_ms(self, now: Moment) -> float:
        """Return the latest time that the clock may show now, in ms since the epoch; 0 while nothing is known."""
        elapsed_ms = self.elapsed_ms(now)
        return 0.0 if self._ahead_ms is None else self._ahead_ms + elapsed_ms

    def learn(self, time_ms: float, asked_ms: float) -> None:
        """Learn from an answer that may be an old one: it may move the time later, never earlier."""
        if self._ahead_ms is not None and time_ms - asked_ms >= self._ahead_ms:
            self.prove(time_ms, asked_ms)

    def prove(self, time_ms: float, asked_ms: float) -> None:
        """Learn from an answer that was surely made after its request: the server's clock showed at most time_ms then.

        asked_ms: `elapsed_ms` of the request's moment. The moment itself would not do: calls since then may have seen a sleep
            that the clocks, corrected meanwhile, no longer show.
        """
        self._ahead_ms = time_ms - asked_ms
