"""Backlog of one place: whether the place keeps up with its purges, and how long copies may live meanwhile. Pure."""

from __future__ import annotations

import math
from typing import Final

from quaestor.cdn_adapters.capabilities import EVERYTHING, Capabilities, Unit
from quaestor.purge_ports import QueueSize

LATE_MS: Final = 2_000
"""Age of the oldest open purge from which a place has fallen behind."""
SHORT_MS: Final = 5_000
"""Lifetime of copies in a place that has fallen behind: a purge of them would come late, or never."""
DARK: Final = "dark"
OVER_BUDGET: Final = "over-budget"
"""States of a place, besides "ok" and "throttled"."""


class Backlog:
    """The backlog of one place, as every process sees it: by the age of the oldest open purge.

    late: the place has fallen behind, is dark, or is over budget.
    turned: whether `late`, or its reason, has changed at the last note.
    copies_live_ms: lifetime of copies that are handed out now; None: as long as otherwise.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self.late = False
        self.turned = False
        self.copies_live_ms: int | None = None
        self._over_budget = False
        self._capabilities = capabilities

    def update(self, size: QueueSize, state: str, now_ms: int, *, over_budget: bool = False) -> str:
        """Note the size of the queue; return the state of the place, for any sending process.

        state: as this process's sender knows it.
        over_budget: the month's budget is spent: no purge may be sent, so new copies must expire by themselves.
        """
        before, bound_ms = (self.late, self._over_budget), self._capabilities.effective_within_ms
        behind = size.oldest_ms is not None and now_ms - size.oldest_ms > LATE_MS
        self.late, self._over_budget = behind or over_budget, over_budget
        self.turned = before != (self.late, over_budget)
        if over_budget:
            self.copies_live_ms = SHORT_MS
        elif behind:
            self.copies_live_ms = max(SHORT_MS, bound_ms)
        elif size.oldest_ms is not None and bound_ms:
            self.copies_live_ms = bound_ms  # copies that a tier above still holds may come back
        else:
            self.copies_live_ms = None
        if over_budget:
            return OVER_BUDGET
        if not behind:
            return "ok"
        return DARK if state == DARK else "throttled"

    def stale_at_most_s(self, size: QueueSize, state: str, now_ms: int) -> float:
        """Return the seconds for which the place may still serve the targets of open purges.

        The time ends when the purges are sent at the pace of the place's rates, or when the copies expire, if that is sooner.
        If nothing is sent, only the expiry counts. Infinite: unknown. 0: no purge is open.
        """
        if size.oldest_ms is None:
            return 0.0
        expired_s = math.inf if size.until_ms is None else max(0, size.until_ms - now_ms) / 1_000
        sent_s = None if state in (DARK, OVER_BUDGET) else self.drained_within_s(size)
        return expired_s if sent_s is None else min(sent_s, expired_s)

    def capacity_per_s(self, kind: str) -> float | None:
        """Return how many targets of this kind the place takes in a second, in full batches; None: no rate limits them."""
        batch = self._capabilities.batch_of(kind)
        rates = self._capabilities.rates_of(kind)
        return min((rate.per_s * (1 if rate.unit is Unit.TARGET else batch) for rate in rates), default=None)

    def drained_within_s(self, size: QueueSize) -> float | None:
        """Return the seconds in which the open purges can be sent, of any kind; None: unknown, as the place has no rates."""
        kinds = [kind for kind in self._capabilities.kinds if kind != EVERYTHING] or self._capabilities.kinds
        speeds = [speed for kind in kinds if (speed := self.capacity_per_s(kind)) is not None]
        if not speeds:
            return None
        return (size.waiting + size.taken) / min(speeds) + self._capabilities.effective_within_ms / 1_000
