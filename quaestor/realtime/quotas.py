"""What a stage may keep, and whose it is: what would be too much is refused, what is there stays.

A tenant is an app with subscriptions here. It may hold so much as four times what is still free: alone four fifths of a stage,
two of them four ninths each. So the one that holds most is refused first, and there is always room for one that comes later.
(Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998: the same rule for buffers.)

A query that several tenants follow counts for each of them, and once for the stage. Bytes are reckoned from sizes, not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import bson

from quaestor.event_layer.codec import BSON_OPTIONS

_TIMES_FREE: Final = 4
_QUERY: Final = 6_000
"""Bytes of a query without its records: plan, compiled filter, machine, its entries here."""
_RECORD: Final = 400
_DECODED: Final = 4
"""How much larger a document is as Python objects than as BSON."""
_SAMPLE: Final = 16


class QuotaError(Exception):
    """There is no room; the message says for whom, and what to do."""


class Held:
    """What one query is charged.

    followers: by tenant, how many subscriptions.
    record_bytes: of one of its records.
    old: it was let in before, by the stage that this one replaces: it is not refused now for what has come since.
    """

    __slots__ = ("bytes", "followers", "old", "record_bytes")

    def __init__(self) -> None:
        self.followers: dict[str, int] = {}
        self.bytes = _QUERY
        self.record_bytes = _RECORD
        self.old = False


class Share:
    """What one tenant holds."""

    __slots__ = ("bytes", "queries", "subscriptions")

    def __init__(self) -> None:
        self.queries = self.bytes = self.subscriptions = 0


class Quotas:
    """max_queries, max_bytes: of all. O(tenants of the query) for each call. Not thread-safe."""

    def __init__(self, *, max_queries: int, max_bytes: int) -> None:
        self.max_queries = max_queries
        self.max_bytes = max_bytes
        self.queries = 0
        self.bytes = 0
        self.shares: dict[str, Share] = {}

    def follow(self, held: Held, tenant: str, *, old: bool) -> None:
        """One subscription more of this tenant.

        old: not a new one; only what all may hold bounds it then, not its tenant's part.

        Raises QuotaError, and nothing has changed then.
        """
        if tenant not in held.followers:
            share = self.shares.get(tenant) or Share()
            self._require(tenant, 0 if old else share.queries, self.queries, self.max_queries, "queries")
            self._require(tenant, 0 if old else share.bytes, self.bytes, self.max_bytes, "bytes")
            held.old |= old
            self.shares[tenant] = share
            share.queries += 1
            share.bytes += held.bytes
            if not held.followers:
                self.queries += 1
                self.bytes += held.bytes
        held.followers[tenant] = held.followers.get(tenant, 0) + 1
        self.shares[tenant].subscriptions += 1

    def leave(self, held: Held, tenant: str) -> None:
        """One subscription less. Does nothing if there is none."""
        if tenant not in held.followers:
            return
        share = self.shares[tenant]
        share.subscriptions -= 1
        held.followers[tenant] -= 1
        if not held.followers[tenant]:
            del held.followers[tenant]
            share.queries -= 1
            share.bytes -= held.bytes
            if not share.queries:
                del self.shares[tenant]
            if not held.followers:
                self.queries -= 1
                self.bytes -= held.bytes

    def drop(self, held: Held) -> None:
        """All subscriptions of a query end."""
        for tenant, subscriptions in list(held.followers.items()):
            for _ in range(subscriptions):
                self.leave(held, tenant)

    def built(self, held: Held, records: Sequence[Any], *, number: int, first: bool) -> None:
        """The query was read.

        records: of its result, or some.
        number: of all that are kept. O(1).

        Raises QuotaError if it is read for the first time and what it keeps is more than there is room for.
        """
        sample = records[:: max(1, len(records) // _SAMPLE)][:_SAMPLE]
        sizes = [len(bson.encode({"": one}, codec_options=BSON_OPTIONS)) for one in sample]
        held.record_bytes = _RECORD + _DECODED * sum(sizes) // max(1, len(sizes))
        self._charge(held, _QUERY + number * held.record_bytes - held.bytes)
        if not first:
            return
        for tenant in held.followers:
            others = 0 if held.old else self.shares[tenant].bytes - held.bytes
            if self.bytes > self.max_bytes or others > _TIMES_FREE * (self.max_bytes - self.bytes):
                raise QuotaError(
                    f"its result takes {held.bytes} bytes, and tenant {tenant!r} holds {others} of the {self.max_bytes} that "
                    "this partition keeps: narrow the query, follow fewer, or add query partitions"
                )

    def grew(self, held: Held, records: int) -> None:
        """So many records more are kept, or fewer. Never refused: see `crowded`."""
        self._charge(held, max(_QUERY - held.bytes, records * held.record_bytes))

    @property
    def crowded(self) -> bool:
        """Whether results have grown beyond what is kept: the largest of `largest` should go."""
        return self.bytes > self.max_bytes

    @property
    def largest(self) -> str:
        """The tenant that holds the most bytes. There must be one."""
        return max(self.shares, key=lambda tenant: self.shares[tenant].bytes)

    def _charge(self, held: Held, size: int) -> None:
        held.bytes += size
        self.bytes += size
        for tenant in held.followers:
            self.shares[tenant].bytes += size

    def _require(self, tenant: str, mine: int, all_: int, most: int, what: str) -> None:
        if all_ >= most or mine > _TIMES_FREE * (most - all_):
            raise QuotaError(
                f"tenant {tenant!r} holds {mine} {what} of the {most} that this partition keeps, and {max(0, most - all_)} are "
                "free: follow fewer, or add query partitions"
            )
