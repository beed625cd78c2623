"""History of one query: for how long its results lived, and for how long the present one has been watched. Pure.

Lifetimes are right-censored: a result whose guard ended before anything changed says only that it lived at least so long.
The time to the next write of a Poisson process is memoryless, so stretches of watched time add up until a change ends them. The
watched time per change is the maximum-likelihood estimate of the mean lifetime under censoring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FOR_EVER_MS: Final = 1 << 62
"""End of the watch over a query that is watched for as long as it takes."""

Elapsed = Callable[[int, int], float]
"""Time between two moments (ms) as a rate counts it: plain, or stretched where the day is busy (see `daily_cycle`)."""


def plain(from_ms: int, until_ms: int) -> float:
    """Time between two moments that counts the same whenever it is."""
    return until_ms - from_ms


@dataclass(slots=True)
class History:
    """History of one query: its observed lifetimes, and the one that is running.

    mean_ms: moving average of its observed lifetimes, of which there were `lifetimes`.
    watched_ms: guarded time since the last invalidation, up to the interval [from_ms, until_ms] that is still
        running; from_ms is None between an invalidation and the next read.
    """

    mean_ms: float = 0.0
    lifetimes: int = 0
    watched_ms: float = 0.0
    from_ms: int | None = None
    until_ms: int = 0

    def read(self, now_ms: int, until_ms: int, elapsed: Elapsed) -> None:
        """Note that it was read, and is watched until then."""
        if self.from_ms is None:
            self.from_ms, self.until_ms = now_ms, until_ms
        elif now_ms <= self.until_ms:
            if until_ms > self.until_ms:
                self.until_ms = until_ms
        else:
            self.watched_ms += elapsed(self.from_ms, self.until_ms)
            self.from_ms, self.until_ms = now_ms, until_ms

    def quiet_ms(self, now_ms: int, elapsed: Elapsed) -> float:
        """The time for which it has been watched without an invalidation."""
        from_ms = self.from_ms
        if from_ms is None:
            return 0.0
        to_ms = now_ms if now_ms < self.until_ms else self.until_ms
        return self.watched_ms + elapsed(from_ms, to_ms if to_ms > from_ms else from_ms)

    def changed(self, now_ms: int, alpha: float, elapsed: Elapsed) -> None:
        """Note the end of a lifetime: averaged plainly at first, by `alpha` of the past once that weighs less."""
        if now_ms > self.until_ms:
            self.until_ms = now_ms  # it was still watched, or nobody would know
        quiet_ms = self.quiet_ms(now_ms, elapsed)
        lifetime_ms = quiet_ms if quiet_ms > 1.0 else 1.0
        self.lifetimes += 1
        past = 1 - 1 / self.lifetimes
        if past > alpha:
            past = alpha
        self.mean_ms = past * self.mean_ms + (1 - past) * lifetime_ms
        self.watched_ms, self.from_ms = 0.0, None
