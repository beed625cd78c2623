"""Options and context of a sender, and the pauses that all senders share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from quaestor.cdn_adapters.batching import BatchLimits
from quaestor.cdn_adapters.capabilities import UNBOUNDED
from quaestor.clock import Clock, system_clock
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import Supervisor

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderContext:
    """Telemetry, supervisor, clock and sleep of a sender. All its parts share them."""

    telemetry: Telemetry
    supervisor: Supervisor
    clock: Clock = system_clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @classmethod
    def of(
        cls,
        telemetry: Telemetry | None = None,
        *,
        clock: Clock = system_clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> SenderContext:
        """Return a context with a supervisor of its own.

        telemetry: None: a new one.
        """
        telemetry = telemetry or Telemetry()
        return cls(telemetry=telemetry, supervisor=Supervisor(telemetry), clock=clock, sleep=sleep)


class GrowingPause:
    """Pause after failures: doubled each time, and random so that processes differ.

    failures: number of pauses until now.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self.failures = 0
        self._first_s = limits.first_retry_ms / 1_000
        self._last_s = max(LAST_PAUSE_S, limits.last_retry_ms / 1_000)
        self._pause_s = self._next_s = self._first_s

    def next_s(self, failures: int | None = None) -> float:
        """Return the next pause in seconds. Requests that fail together share one.

        failures: number of pauses before the failed request was sent; None: as many as now.
        """
        if failures is None or failures == self.failures:
            self.failures += 1
            self._pause_s = self._next_s
            self._next_s = min(2 * self._pause_s, self._last_s)
        return self._pause_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._next_s = self._first_s
