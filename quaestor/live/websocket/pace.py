"""Pace of one client: a bucket of messages that fills with time."""

from __future__ import annotations


class Pace:
    """Pace of one client.

    per_second: messages that may come in the long run.
    burst: messages that may come at once.
    """

    def __init__(self, per_second: int, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._at_s = 0.0

    def pause_s(self, now_s: float) -> float:
        """Seconds to wait after one more message; mostly 0.

        now_s: by a clock that does not go back.
        """
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        self._left -= 1
        return max(0.0, -self._left / self._per_second)
