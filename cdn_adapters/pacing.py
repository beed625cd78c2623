"""Pace of one place's requests: how large they may be now, and when the next may be sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from cdn_adapters.batching import BatchLimits
from cdn_adapters.capabilities import Capabilities, Unit
from cdn_adapters.place import Target
from quaestor.clock import Clock
from quaestor.purge_ports import PurgeOutbox


class Pacing:
    """The pace of one place, kept in buckets that all processes share.

    limits: narrower ones than the place's own.
    largest: targets of one request, while the one that is refused is looked for.
    """

    def __init__(
        self,
        capabilities: Capabilities,
        outbox: PurgeOutbox,
        *,
        limits: BatchLimits,
        largest: int,
        clock: Clock,
    ) -> None:
        self.largest = largest
        self._capabilities = capabilities
        self._outbox = outbox
        self._limits = limits
        self._clock = clock

    def requests(self) -> Capabilities:
        """The place's capabilities, with requests as large as they may be now."""
        capabilities = self._capabilities
        most = min(self.largest, self._limits.max_targets)
        batch = {kind: max(1, min(capabilities.batch_of(kind), most)) for kind in capabilities.kinds}
        for rate in capabilities.rates:
            if rate.unit is Unit.TARGET:
                batch |= {kind: max(1, min(batch[kind], int(rate.burst) - 1)) for kind in rate.kinds if kind in batch}
        batch_bytes = min(capabilities.batch_bytes, self._limits.max_bytes)
        return replace(capabilities, batch=MappingProxyType(batch), batch_bytes=batch_bytes)

    async def spend(self, batch: Sequence[Target]) -> int:
        """Pay for a request; ms to wait before it. Raises StoreError.

        Requests follow each other, so in any time the place sees at most one more than was paid in it: a burst of one less.
        """
        longest_ms = 0
        for rate in self._capabilities.rates_of(batch[0].by):
            wait_ms = await self._outbox.spend(
                rate.bucket,
                tokens=len(batch) if rate.unit is Unit.TARGET else 1,
                per_s=rate.per_s,
                burst=max(1.0, rate.burst - 1),
                now_ms=self._clock(),
            )
            longest_ms = max(longest_ms, wait_ms)
        return longest_ms

    async def hold(self, kind: str, seconds: float) -> None:
        """Keep every process from sending this kind for so long, because the provider said so. Raises StoreError."""
        for rate in self._capabilities.rates_of(kind):
            await self._outbox.hold(rate.bucket, for_ms=int(seconds * 1_000), now_ms=self._clock())
