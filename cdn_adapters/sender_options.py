"""Options of a sender, and the pauses that all senders share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quaestor.cdn_adapters.batching import BatchLimits
from quaestor.cdn_adapters.capabilities import UNBOUNDED

LEASE_MS: Final = 30_000
"""How long a purge may be taken and not acknowledged before it is anybody's again."""
LEAD_MS: Final = 5_000
"""How long the sender of a place with rates leads without saying so again."""
LONGEST_HOLD_S: Final = LEAD_MS / 2_000
"""How long it pauses at most while its buckets are empty or held: it leads on meanwhile."""
POLL_S: Final = 0.25
"""How often a sender looks for what other processes have put in, or have left behind, and for what is due again."""
LAST_PAUSE_S: Final = 30.0
"""Longest pause after failures, if the limits do not say a longer one."""
MOST_AT_ONCE: Final = 1_000
"""Purges that a sender takes at once."""

UNLIMITED: Final = BatchLimits(max_targets=UNBOUNDED, max_bytes=UNBOUNDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOptions:
    """Options of a sender.

    repurge_after_ms: what was on its way to the place when it was purged is purged again after this.
    lease_ms: see LEASE_MS.
    limits: narrower ones than the place's own.
    budget_usd: see MonthlyBudget; None: there is none.
    """

    repurge_after_ms: int = 1_000
    lease_ms: int = LEASE_MS
    limits: BatchLimits = UNLIMITED
    budget_usd: float | None = None
