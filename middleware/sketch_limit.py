"""Limit of requests for the Cache Sketch that no cache answers: those with a number of the client's own (`?nonce=`). Pure."""

from __future__ import annotations

PER_SECOND = 100
"""In one process, of all clients together. Who is refused revalidates everything, which costs the origin a request each time; so
it is far above what clients need, who only ask so when a cache in between has shown them something old."""
BURST = 200


class NonceLimit:
    """A token bucket. If the clock runs backwards nothing is added."""

    def __init__(self, *, per_second: float = PER_SECOND, burst: float = BURST) -> None:
        self._per_ms = per_second / 1000
        self._burst = burst
        self._left = burst
        self._at_ms = 0

    def passes(self, now_ms: int) -> bool:
        """Whether one more may pass now."""
        self._left = min(self._burst, self._left + max(0, now_ms - self._at_ms) * self._per_ms)
        self._at_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True
