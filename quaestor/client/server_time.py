"""Latest time that the server's clock may show, as a client with an unreliable clock knows it. Pure.

An answer that was surely made after a moment, and that says a time, proves that the server's clock showed no more than that time
at the moment; since then no more has gone by than since it. Wall clock and monotonic clock may each stand still or jump (sleep, a
corrected clock), so the one that has gone further counts each time, and a little more, because clocks run at different speeds.
"""

from __future__ import annotations

from dataclasses import dataclass

DRIFT = 0.001
"""By how much two clocks may differ in speed: NTP slews one by at most half of this."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by both clocks of this machine.

    wall_ms: since the epoch.
    monotonic_ms: since some moment in the past.
    """

    wall_ms: float
    monotonic_ms: float


class ServerTime:
    """Knowledge of the server's clock."""

    __slots__ = ("_at", "_time_ms")

    def __init__(self) -> None:
        self._time_ms = 0.0
        self._at = Moment(0.0, 0.0)

    @property
    def known(self) -> bool:
        """Whether any answer has proved it."""
        return self._time_ms > 0

    def latest_ms(self, now: Moment) -> float:
        """The latest that it may show now, in ms since the epoch; 0 while nothing is known.

        What has gone by is added up look by look, so that a sleep and a later correction of the wall clock do not make up for
        each other; only both between two looks would. A moment before the last look is answered as that one.
        """
        if not self._time_ms:
            return 0.0
        if now.monotonic_ms >= self._at.monotonic_ms:
            gone = max(now.wall_ms - self._at.wall_ms, now.monotonic_ms - self._at.monotonic_ms)
            self._time_ms += gone * (1 + DRIFT)
            self._at = now
        return self._time_ms

    def learn(self, time_ms: float, asked: Moment) -> None:
        """Learn from an answer that may be an old one: it may make the time later, never earlier."""
        if self.known and time_ms >= self.latest_ms(asked):
            self.prove(time_ms, asked)

    def prove(self, time_ms: float, asked: Moment) -> None:
        """Learn from an answer that was surely made after `asked`: the server's clock showed at most time_ms then."""
        self._time_ms = time_ms
        self._at = asked
