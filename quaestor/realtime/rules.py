"""Rules of a stage: its leases and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from quaestor.incremental import RenewalSettings
from quaestor.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRules:
    """Leases and limits of one stage.

    lease_ms: how long subscriptions last, and what is announced to the cells, unless they are extended.
    max_queries, max_bytes: subscribed to at once in one partition, and what their results are taken to cost (see
        quotas.py).
    max_subscriptions: of app servers to one query.
    max_result_bytes: a message with a result, encoded.
    propagation_ms: shortest time between two changes in place of one record (see propagation_limit.py); 0: no limit.
    readers: threads that read from the database; 0: the stage's own.
    """

    lease_ms: int = 120_000
    max_queries: int = 100_000
    max_bytes: int = 2 * 1024**3
    max_subscriptions: int = 10_000
    max_result_bytes: int = 16 * 1024 * 1024
    propagation_ms: int = 0
    readers: int = 4
    renewal: RenewalSettings = field(default_factory=RenewalSettings)

    @classmethod
    def of(cls, settings: Settings) -> StageRules:
        """The rules that the settings say."""
        renewal = RenewalSettings(poll_interval_ms=settings.realtime.poll_interval_ms)
        return cls(
            lease_ms=settings.realtime.subscription_lease_ms,
            max_bytes=settings.grid.node_memory_bytes,
            propagation_ms=settings.realtime.propagation_ms,
            renewal=renewal,
        )
