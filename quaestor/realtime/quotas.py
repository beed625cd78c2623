"""Quotas of tenants in a stage: new subscriptions beyond a quota are refused, existing ones stay.

A tenant is an app with subscriptions here. Each tenant may hold up to four times the free space: alone four fifths of a stage,
two tenants four ninths each. The largest tenant is refused first, and a later tenant always finds some space.
(Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998: the same rule for buffers.)

A query that several tenants subscribe to counts for each of them, and once for the stage. Bytes are estimated from
sizes, not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import bson

from quaestor.event_layer.codec import BSON_OPTIONS

_TIMES_FREE: Final = 4
_QUERY: Final = 6_000
"""Bytes of a query without its records: plan, compiled filter, state machine, its entries here."""
_RECORD: Final = 400
_DECODED: Final = 4
"""How much larger a document is as Python objects than as BSON."""
_SAMPLE: Final = 16


class QuotaError(Exception):
    """Error that a quota is used up; the message says whose, and what to do."""


class QueryCharge:
    """Charge of one query.

    subscriptions: by tenant, how many.
    bytes: that its result is taken to cost.
    record_bytes: of one of its records.
    admitted_before: by the stage that this one replaces: it is not refused now for what has come since.
    """

    __slots__ = ("admitted_before", "bytes", "record_bytes", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[str, int] = {}
        self.bytes = _QUERY
        self.record_bytes = _RECORD
        self.admitted_before = False


class TenantUsage:
    """Usage of one tenant."""

    __slots__ = ("bytes", "queries", "subscriptions")

    def __init__(self) -> None:
        self.queries = self.bytes = self.subscriptions = 0


class Quotas:
    """Quotas of the tenants of one stage. O(tenants of the query) for each call. Not thread-safe.

    max_queries, max_bytes: of all together.
    usage: by tenant.
    """

    def __init__(self, *, max_queries: int, max_bytes: int) -> None:
        self.max_queries = max_queries
        self.max_bytes = max_bytes
        self.queries = 0
        self.bytes = 0
        self.usage: dict[str, TenantUsage] = {}

    def admit(self, charge: QueryCharge, tenant: str, *, admitted_before: bool) -> None:
        """Count one subscription more of this tenant.

        admitted_before: it is not a new one; only what all may hold bounds it then, not its tenant's part.

        Raises QuotaError, and nothing has changed then.
        """
        if tenant not in charge.subscriptions:
            usage = self.usage.get(tenant) or TenantUsage()
            self._require(tenant, 0 if admitted_before else usage.queries, self.queries, self.max_queries, "queries")
            self._require(tenant, 0 if admitted_before else usage.bytes, self.bytes, self.max_bytes, "bytes")
            charge.admitted_before |= admitted_before
            self.usage[tenant] = usage
            usage.queries += 1
            usage.bytes += charge.bytes
            if not charge.subscriptions:
                self.queries += 1
                self.bytes += charge.bytes
        charge.subscriptions[tenant] = charge.subscriptions.get(tenant, 0) + 1
        self.usage[tenant].subscriptions += 1

    def release(self, charge: QueryCharge, tenant: str) -> None:
        """Count one subscription less. Does nothing if there is none."""
        if tenant not in charge.subscriptions:
            return
        usage = self.usage[tenant]
        usage.subscriptions -= 1
        charge.subscriptions[tenant] -= 1
        if not charge.subscriptions[tenant]:
            del charge.subscriptions[tenant]
            usage.queries -= 1
            usage.bytes -= charge.bytes
            if not usage.queries:
                del self.usage[tenant]
            if not charge.subscriptions:
                self.queries -= 1
                self.bytes -= charge.bytes

    def release_all(self, charge: QueryCharge) -> None:
        """End all subscriptions to a query."""
        for tenant, subscriptions in list(charge.subscriptions.items()):
            for _ in range(subscriptions):
                self.release(charge, tenant)

    def charge_result(self, charge: QueryCharge, records: Sequence[Any], *, number: int, first: bool) -> None:
        """Charge a query with the result that was read for it.

        records: of its result, or some.
        number: of all that are kept. O(1).

        Raises QuotaError if it is read for the first time and what it keeps is more than its tenants may hold.
        """
        sample = records[:: max(1, len(records) // _SAMPLE)][:_SAMPLE]
        sizes = [len(bson.encode({"": row}, codec_options=BSON_OPTIONS)) for row in sample]
        charge.record_bytes = _RECORD + _DECODED * sum(sizes) // max(1, len(sizes))
        self._add(charge, _QUERY + number * charge.record_bytes - charge.bytes)
        if not first:
            return
        for tenant in charge.subscriptions:
            others = 0 if charge.admitted_before else self.usage[tenant].bytes - charge.bytes
            if self.bytes > self.max_bytes or others > _TIMES_FREE * (self.max_bytes - self.bytes):
                raise QuotaError(
                    f"its result takes {charge.bytes} bytes, and tenant {tenant!r} holds {others} of the {self.max_bytes} that "
                    "this partition keeps: narrow the query, follow fewer, or add query partitions"
                )

    def charge_growth(self, charge: QueryCharge, records: int) -> None:
        """Charge a query with so many records more, or fewer. Never refused: see `exceeded`."""
        self._add(charge, max(_QUERY - charge.bytes, records * charge.record_bytes))

    @property
    def exceeded(self) -> bool:
        """Whether results have grown beyond what is kept: the largest of `largest_tenant` should go."""
        return self.bytes > self.max_bytes

    @property
    def largest_tenant(self) -> str:
        """Tenant that holds the most bytes. There must be one."""
        return max(self.usage, key=lambda tenant: self.usage[tenant].bytes)

    def _add(self, charge: QueryCharge, size: int) -> None:
        charge.bytes += size
        self.bytes += size
        for tenant in charge.subscriptions:
            self.usage[tenant].bytes += size

    def _require(self, tenant: str, mine: int, all_: int, most: int, what: str) -> None:
        if all_ >= most or mine > _TIMES_FREE * (most - all_):
            raise QuotaError(
                f"tenant {tenant!r} holds {mine} {what} of the {most} that this partition keeps, and {max(0, most - all_)} are "
                "free: follow fewer, or add query partitions"
            )
