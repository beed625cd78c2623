"""Limit of requests for the Cache Sketch that reach the process: requests with a number of the client's own (`?nonce=`). Pure."""

from __future__ import annotations

PER_SECOND = 100
"""In one process, for all clients together. A refused client revalidates everything, which costs the origin a request each time.
The limit is far above what clients need: they send a nonce only after a cache in between has shown them an old sketch."""
BURST = 200


class NonceLimit:
    """A token bucket. While the clock runs backwards no token is added."""

    def __init__(self, *, per_second: float = PER_SECOND, burst: float = BURST) -> None:
        self._per_ms = per_second / 1000
        self._burst = burst
        self._left = burst
        self._at_ms = 0

    def passes(self, now_ms: int) -> bool:
        """Whether one more request may pass now; if so, take a token."""
        self._left = min(self._burst, self._left + max(0, now_ms - self._at_ms) * self._per_ms)
        self._at_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True
