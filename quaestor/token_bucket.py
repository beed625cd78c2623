"""Token bucket: a limit in the long run, with room for a burst. Pure."""

from __future__ import annotations


class TokenBucket:
    """A token bucket. While the clock runs backwards no token is added.

    per_second: tokens that are added.
    burst: tokens that the bucket holds at most, and at the start.
    """

    def __init__(self, *, per_second: float, burst: float) -> None:
        self._per_ms = per_second / 1000
        self._burst = burst
        self._left = burst
        self._at_ms = 0.0

    def passes(self, now_ms: float) -> bool:
        """Whether there is a token now; if so, take it."""
        self._fill(now_ms)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def delay_ms(self, now_ms: float) -> float:
        """Take a token in any case. Return the time until the bucket has it; mostly 0."""
        self._fill(now_ms)
        self._left -= 1
        return max(0.0, -self._left / self._per_ms)

    def _fill(self, now_ms: float) -> None:
        self._left = min(self._burst, self._left + max(0.0, now_ms - self._at_ms) * self._per_ms)
        self._at_ms = now_ms
