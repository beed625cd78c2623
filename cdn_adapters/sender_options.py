"""Options of a sender, and the pauses that all senders share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quaestor.cdn_adapters.batching import BatchLimits
from quaestor.cdn_adapters.capabilities import UNBOUNDED

LEASE_MS: Final = 30_000
"""How long a taken purge may stay unacknowledged before any process may take it."""
LEAD_MS: Final = 5_000
"""How long the sender of a place with rates leads before it has to renew its lead."""
LONGEST_HOLD_S: Final = LEAD_MS / 2_000
"""Longest pause of a sender while its buckets are empty or held: it leads on meanwhile."""
POLL_S: Final = 0.25
"""How often a sender looks for due purges, and for purges that other processes have put in or left behind."""
LAST_PAUSE_S: Final = 30.0
"""Longest pause after failures, unless the limits name a longer one."""
MOST_AT_ONCE: Final = 1_000
"""Most purges that a sender takes at once."""

UNLIMITED: Final = BatchLimits(max_targets=UNBOUNDED, max_bytes=UNBOUNDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOptions:
    """Options of a sender.

    repurge_after_ms: delay before the second purge, for answers that were on their way to the place during the first.
    lease_ms: see LEASE_MS.
    limits: narrower limits than the place's own.
    budget_usd: see MonthlyBudget; None: no budget.
    """

    repurge_after_ms: int = 1_000
    lease_ms: int = LEASE_MS
    limits: BatchLimits = UNLIMITED
    budget_usd: float | None = None
