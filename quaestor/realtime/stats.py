"""Statistics of a stage, published once a second for people: a small value in the event layer, nothing depends on it.

| field | meaning |
|---|---|
| v, t | format 1, `g` |
| part, shape, at | whose, in which grid, as of when (ms since the epoch) |
| q, s, b | subscribed queries, app servers' subscriptions to them, and the bytes that their results are taken to cost |
| behind | queries whose result is being read, or not yet matched by every cell |
| read, m, ref | since the stage began: results read anew (renewals), matched writes applied, subscriptions refused |
| mps | over the last period: matched writes a second |
| lag | how far the slowest cell lags behind the database, in ms; -1: not every cell has been heard of |
| ten | the largest tenants: [name, queries, subscriptions, bytes] |
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Final

import bson
from bson.errors import BSONError

from quaestor.event_layer import streams
from quaestor.event_layer.shapes import decode_shape, encode_shape
from quaestor.model import GridShape
from quaestor.ports import EventLayer
from quaestor.realtime.progress import PartitionProgress
from quaestor.realtime.quotas import Quotas

_FORMAT: Final = 1
_MOST_TENANTS: Final = 10
_MOST_STAGES: Final = 4_096
UNKNOWN_LAG: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTenant:
    """Usage of a stage by one tenant."""

    tenant: str
    queries: int
    subscriptions: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStats:
    """Statistics of one stage as of at_ms; see the table above. A stage that is gone leaves its last value: mind its age."""

    query_partition: int
    shape: GridShape
    at_ms: int
    queries: int
    subscriptions: int
    bytes: int
    behind: int
    renewals: int
    matched: int
    refused: int
    matched_per_s: float
    lag_ms: int
    tenants: tuple[StageTenant, ...] = ()


def stage_stats(layer: EventLayer, deployment: str, shape: GridShape) -> list[StageStats]:
    """Newest statistics of the stages of this grid, in the order of their partitions; a stage without any is missing.

    One value is read for each stage. Raises EventLayerError.
    """
    names = [
        streams.stage_stats(deployment, partition, shape.generation)
        for partition in range(min(shape.query_partitions, _MOST_STAGES))
    ]
    decoded = (decode_stage_stats(value) for name in names if (value := layer.get(name)) is not None)
    return [stats for stats in decoded if stats is not None and stats.shape == shape]


def encode_stage_stats(stats: StageStats) -> bytes:
    """Value as it lies in the event layer."""
    return bson.encode(
        {
            "v": _FORMAT, "t": "g", "part": stats.query_partition, "shape": encode_shape(stats.shape), "at": stats.at_ms,
            "q": stats.queries, "s": stats.subscriptions, "b": stats.bytes, "behind": stats.behind,
            "read": stats.renewals, "m": stats.matched, "ref": stats.refused, "mps": stats.matched_per_s,
            "lag": stats.lag_ms,
            "ten": [[tenant.tenant, tenant.queries, tenant.subscriptions, tenant.bytes] for tenant in stats.tenants],
        }
    )  # fmt: skip


def decode_stage_stats(value: bytes) -> StageStats | None:
    """Statistics in a value; None if it is of another format: it is for people, so nobody has to fail for it."""
    try:
        fields: dict[str, Any] = bson.decode(value)
        if fields["v"] != _FORMAT or fields["t"] != "g":
            return None
        return StageStats(
            query_partition=int(fields["part"]),
            shape=decode_shape(fields["shape"]),
            at_ms=int(fields["at"]),
            queries=int(fields["q"]),
            subscriptions=int(fields["s"]),
            bytes=int(fields["b"]),
            behind=int(fields["behind"]),
            renewals=int(fields["read"]),
            matched=int(fields["m"]),
            refused=int(fields["ref"]),
            matched_per_s=float(fields["mps"]),
            lag_ms=int(fields["lag"]),
            tenants=tuple(
                StageTenant(tenant=str(tenant), queries=int(queries), subscriptions=int(subscriptions), bytes=int(size))
                for tenant, queries, subscriptions, size in fields["ten"]
            ),
        )
    except (BSONError, KeyError, TypeError, ValueError):
        return None


class StageMeter:
    """Meter of one stage. Not thread-safe.

    renewals, matched, refused: counted by the stage since it began.
    """

    def __init__(self, deployment: str, query_partition: int, shape: GridShape) -> None:
        self._name = streams.stage_stats(deployment, query_partition, shape.generation)
        self.renewals = 0
        self.matched = 0
        self.refused = 0
        self._partition = query_partition
        self._shape = shape
        self._period_began_s = time.monotonic()
        self._before = 0

    def publish(self, layer: EventLayer, quotas: Quotas, progress: PartitionProgress, *, now_ms: int) -> None:
        """Put the statistics where `stage_stats` finds them. Raises EventLayerError."""
        layer.put(self._name, encode_stage_stats(self.measure(quotas, progress, now_ms=now_ms)))

    def measure(self, quotas: Quotas, progress: PartitionProgress, *, now_ms: int) -> StageStats:
        """Statistics of the period since the last call, and of what the stage holds now. O(tenants)."""
        now_s = time.monotonic()
        seconds, matched = max(now_s - self._period_began_s, 1e-3), self.matched - self._before
        self._period_began_s, self._before = now_s, self.matched
        largest = nlargest(_MOST_TENANTS, quotas.usage.items(), key=lambda item: item[1].bytes)
        return StageStats(
            query_partition=self._partition,
            shape=self._shape,
            at_ms=now_ms,
            queries=quotas.queries,
            subscriptions=sum(usage.subscriptions for usage in quotas.usage.values()),
            bytes=quotas.bytes,
            behind=len(progress.behind),
            renewals=self.renewals,
            matched=self.matched,
            refused=self.refused,
            matched_per_s=matched / seconds,
            lag_ms=max(0, now_ms - progress.fresh_as_of_ms) if progress.fresh_as_of_ms else UNKNOWN_LAG,
            tenants=tuple(
                StageTenant(tenant=name, queries=usage.queries, subscriptions=usage.subscriptions, bytes=usage.bytes)
                for name, usage in largest
            ),
        )
