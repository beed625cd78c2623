"""Pace of one place's requests: how large a request may be now, and when the next may be sent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from quaestor.cdn_adapters.batching import BatchLimits
from quaestor.cdn_adapters.budget import MonthlyBudget
from quaestor.cdn_adapters.capabilities import Capabilities, Rate, Unit
from quaestor.cdn_adapters.place import Target
from quaestor.clock import Clock
from quaestor.errors import StoreError
from quaestor.purge_ports import Bucket, PurgeAccounts

_OVER_BUDGET_MS: Final = 60_000


class Pacing:
    """The pace of one place, kept in buckets that all processes share. Its requests follow each other.

    payer: name of the sender of the requests.
    lease_ms: how long a request may be under way.
    limits: narrower limits than the place's own.
    budget: of a month; None: no budget.
    largest: targets of one request, while a refused target is searched.
    """

    def __init__(
        self,
        capabilities: Capabilities,
        accounts: PurgeAccounts,
        *,
        payer: str,
        lease_ms: int,
        limits: BatchLimits,
        budget: MonthlyBudget | None = None,
        largest: int,
        clock: Clock,
    ) -> None:
        self.largest = largest
        self._capabilities = capabilities
        self._accounts = accounts
        self._payer = payer
        self._lease_ms = lease_ms
        self._limits = limits
        self._budget = budget
        self._clock = clock
        self._paid: list[Bucket] = []

    def requests(self) -> Capabilities:
        """Return the place's capabilities, with requests as large as they may be now."""
        capabilities = self._capabilities
        most = min(self.largest, self._limits.max_targets)
        batch = {kind: max(1, min(capabilities.batch_of(kind), most)) for kind in capabilities.kinds}
        for rate in capabilities.rates:
            if rate.unit is Unit.TARGET:  # one less: the bucket need not be full to the brim
                batch |= {kind: max(1, min(batch[kind], int(rate.burst) - 1)) for kind in rate.kinds if kind in batch}
        batch_bytes = min(capabilities.batch_bytes, self._limits.max_bytes)
        return replace(capabilities, batch=MappingProxyType(batch), batch_bytes=batch_bytes)

    async def spend(self, batch: Sequence[Target]) -> int:
        """Pay for a request, from all its buckets or from none; return the ms to wait before it. Raises StoreError."""
        paid: list[Bucket] = []
        for rate in self._capabilities.rates_of(batch[0].by):
            bucket = _bucket(rate)
            wait_ms = await self._accounts.spend(
                bucket,
                tokens=len(batch) if rate.unit is Unit.TARGET else 1,
                payer=self._payer,
                lease_ms=self._lease_ms,
                now_ms=self._clock(),
            )
            if wait_ms:
                await self._settle(paid, sent=False)
                return wait_ms
            paid.append(bucket)
        if self._budget is not None and not await self._budget.pay(len(batch)):
            await self._settle(paid, sent=False)
            self.largest = max(1, min(self.largest, self._budget.left))
            return _OVER_BUDGET_MS if self._budget.spent else 1
        self._paid = paid
        return 0

    async def answered(self) -> None:
        """Note that the paid request was answered, or failed. If the note fails, the lease ends the request."""
        paid, self._paid = self._paid, []
        with suppress(StoreError):
            await self._settle(paid, sent=True)

    async def refused(self, batch: Sequence[Target]) -> None:
        """Note that the paid request has purged nothing. Raises StoreError."""
        if self._budget is not None:
            await self._budget.refund(len(batch))

    async def hold(self, kind: str, seconds: float) -> None:
        """Keep every process from sending this kind for so many seconds, as the provider asked. Raises StoreError."""
        for rate in self._capabilities.rates_of(kind):
            await self._accounts.hold(_bucket(rate), for_ms=int(seconds * 1_000), now_ms=self._clock())

    async def _settle(self, paid: Sequence[Bucket], *, sent: bool) -> None:
        for bucket in paid:
            await self._accounts.settle(bucket, payer=self._payer, sent=sent, now_ms=self._clock())


def _bucket(rate: Rate) -> Bucket:
    return Bucket(rate.bucket, rate.per_s, rate.burst)
