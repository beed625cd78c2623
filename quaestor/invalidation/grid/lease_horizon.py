"""Horizon of the leases in a query pipeline: the time from which on entries are still needed."""

from __future__ import annotations

from collections import deque


class LeaseHorizon:
    """Age of the oldest entry that must be kept, without a record of each entry.

    Only leases that outlast every earlier one are kept. The first of these that is not over belongs to the oldest entry
    still needed. Registrations that died early count as alive.
    """

    def __init__(self) -> None:
        self._leases: deque[tuple[int, int]] = deque()

    def add(self, appended_at_ms: int, expires_at_ms: int) -> None:
        """Note the time until which an entry is needed. Entries come in the order of the pipeline. O(1)."""
        if not self._leases or expires_at_ms > self._leases[-1][1]:
            self._leases.append((appended_at_ms, expires_at_ms))

    def trimmed(self, before_ms: int) -> None:
        """Forget the entries appended before this time: they have been trimmed, needed or not."""
        while self._leases and self._leases[0][0] < before_ms:
            self._leases.popleft()

    def needed_since_ms(self, now_ms: int) -> int:
        """Return the time at which the oldest needed entry was appended (ms since the epoch); now, if none is needed."""
        while self._leases and self._leases[0][1] <= now_ms:
            self._leases.popleft()
        return self._leases[0][0] if self._leases else now_ms
