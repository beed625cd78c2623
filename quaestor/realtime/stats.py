"""What each stage says of itself once a second, for people: a small value in the event layer, nothing depends on it.

| field | meaning |
|---|---|
| v, t | format 1, `g` |
| part, shape, at | whose, in which grid, as of when (ms since the epoch) |
| q, s, b | standing queries followed, app servers' subscriptions to them, and the bytes that their results are taken to cost |
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
from quaestor.realtime.progress import GridProgress
from quaestor.realtime.quotas import Quotas

_FORMAT: Final = 1
_MOST_TENANTS: Final = 10
_MOST_STAGES: Final = 4_096
UNKNOWN_LAG: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTenant:
    """What one tenant holds of a stage."""

    tenant: str
    queries: int
    subscriptions: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStats:
    """One stage as of at_ms; see the table above. A stage that is gone leaves its last value: mind its age."""

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
    """What the stages of this grid said last, in the order of their partitions; those that never said anything are missing.

    One value is read for each stage. Raises EventLayerError.
    """
    names = [
        streams.stage_stats(deployment, partition, shape.generation)
        for partition in range(min(shape.query_partitions, _MOST_STAGES))
    ]
    said = (decode_stage_stats(value) for name in names if (value := layer.get(name)) is not None)
    return [stats for stats in said if stats is not None and stats.shape == shape]


def encode_stage_stats(stats: StageStats) -> bytes:
    return bson.encode(
        {
            "v": _FORMAT, "t": "g", "part": stats.query_partition, "shape": encode_shape(stats.shape), "at": stats.at_ms,
            "q": stats.queries, "s": stats.subscriptions, "b": stats.bytes, "behind": stats.behind,
            "read": stats.renewals, "m": stats.matched, "ref": stats.refused, "mps": stats.matched_per_s,
            "lag": stats.lag_ms,
            "ten": [[one.tenant, one.queries, one.subscriptions, one.bytes] for one in stats.tenants],
        }
    )  # fmt: skip


def decode_stage_stats(value: bytes) -> StageStats | None:
    """None if it is of another format: it is for people, so nobody has to fail for it."""
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
    """renewals, matched, refused: counted by the stage since it began. Not thread-safe."""

    def __init__(self, deployment: str, query_partition: int, shape: GridShape) -> None:
        self._name = streams.stage_stats(deployment, query_partition, shape.generation)
        self.renewals = 0
        self.matched = 0
        self.refused = 0
        self._partition = query_partition
        self._shape = shape
        self._begun_s = time.monotonic()
        self._before = 0

    def tell(self, layer: EventLayer, room: Quotas, how_far: GridProgress, *, now_ms: int) -> None:
        """Put what there is to say where `stage_stats` finds it. Raises EventLayerError."""
        layer.put(self._name, encode_stage_stats(self.take(room, how_far, now_ms=now_ms)))

    def take(self, room: Quotas, how_far: GridProgress, *, now_ms: int) -> StageStats:
        """The period since the last call, and what the stage holds now. O(tenants)."""
        now_s = time.monotonic()
        seconds, matched = max(now_s - self._begun_s, 1e-3), self.matched - self._before
        self._begun_s, self._before = now_s, self.matched
        largest = nlargest(_MOST_TENANTS, room.shares.items(), key=lambda item: item[1].bytes)
        return StageStats(
            query_partition=self._partition,
            shape=self._shape,
            at_ms=now_ms,
            queries=room.queries,
            subscriptions=sum(share.subscriptions for share in room.shares.values()),
            bytes=room.bytes,
            behind=len(how_far.behind),
            renewals=self.renewals,
            matched=self.matched,
            refused=self.refused,
            matched_per_s=matched / seconds,
            lag_ms=max(0, now_ms - how_far.fresh_as_of_ms) if how_far.fresh_as_of_ms else UNKNOWN_LAG,
            tenants=tuple(
                StageTenant(tenant=name, queries=share.queries, subscriptions=share.subscriptions, bytes=share.bytes)
                for name, share in largest
            ),
        )
