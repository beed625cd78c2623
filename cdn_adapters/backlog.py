"""Backlog of one place: whether it takes purges as fast as there are, and what may be promised meanwhile. Pure."""

from __future__ import annotations

from typing import Final

from cdn_adapters.capabilities import Capabilities, Unit
from quaestor.purge_ports import QueueSize

LATE_MS: Final = 2_000
"""A place with an open purge that is older than this has fallen behind."""
SHORT_MS: Final = 5_000
"""Lifetime of copies in a place that has fallen behind: a purge of them would come late, or not at all."""


class Backlog:
    """The backlog of one place, as every process sees it: by the age of the oldest open purge.

    late: it has fallen behind, or is dark.
    turned: that has changed at the last call of told().
    copies_live_ms: how long copies may live that are handed out now; None: as long as otherwise.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self.late = False
        self.turned = False
        self.copies_live_ms: int | None = None
        self._capabilities = capabilities

    def told(self, size: QueueSize, state: str, now_ms: int) -> str:
        """Note the size of the queue; the state that the place is in, whoever sends.

        state: as this process's sender knows it.
        """
        before, bound_ms = self.late, self._capabilities.effective_within_ms
        behind = size.oldest_ms is not None and now_ms - size.oldest_ms > LATE_MS
        self.late = behind
        self.turned = before != self.late
        if behind:
            self.copies_live_ms = max(SHORT_MS, bound_ms)
        elif size.oldest_ms is not None and bound_ms:
            self.copies_live_ms = bound_ms  # what a tier above still holds may come back with them
        else:
            self.copies_live_ms = None
        if not behind:
            return "ok"
        return "dark" if state == "dark" else "throttled"

    def drained_within_s(self, size: QueueSize) -> float | None:
        """Seconds in which what is open can be sent; None: nobody knows, because the place has no rates."""
        speeds = [
            rate.per_s * (1 if rate.unit is Unit.TARGET else min(map(self._capabilities.batch_of, rate.kinds)))
            for rate in self._capabilities.rates
            if rate.kinds
        ]
        if not speeds:
            return None
        return (size.waiting + size.taken) / min(speeds) + self._capabilities.effective_within_ms / 1_000
