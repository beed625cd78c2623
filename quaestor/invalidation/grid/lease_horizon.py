"""Horizon of the leases in a query pipeline: the moment since which entries are still needed."""

from __future__ import annotations

from collections import deque


class LeaseHorizon:
    """The age of the oldest entry that has to be kept, without remembering each of them.

    Kept are only those whose lease outlasts every earlier one's: the first of these that is not over is the oldest that
    anybody still needs. Registrations that died early are counted as alive.
    """

    def __init__(self) -> None:
        self._leases: deque[tuple[int, int]] = deque()

    def add(self, appended_at_ms: int, expires_at_ms: int) -> None:
        """Note that an entry is needed until a moment. Entries come in the order of the pipeline. O(1)."""
        if not self._leases or expires_at_ms > self._leases[-1][1]:
            self._leases.append((appended_at_ms, expires_at_ms))

    def trimmed(self, before_ms: int) -> None:
        """Forget what was appended before then: it has been trimmed, needed or not."""
        while self._leases and self._leases[0][0] < before_ms:
            self._leases.popleft()

    def needed_since_ms(self, now_ms: int) -> int:
        """Moment at which the oldest entry that is still needed was appended (ms since the epoch); now, if none is."""
        while self._leases and self._leases[0][1] <= now_ms:
            self._leases.popleft()
        return self._leases[0][0] if self._leases else now_ms
