"""Maintenance of the pipelines around a cell, once a second: what is too old or too much goes, the rest is measured.

| pipeline | by time | by size |
|---|---|---|
| write | older than the retention, and read by this cell | the oldest go; a cell that misses some invalidates everything |
| query | no lease lasts so long, and read by this cell | what lives in the oldest part is given up first (query_retention.py) |
| notification | older than any reader looks back | the oldest go; an app process that misses some drops what it has stored |
| matched | older than the retention | the oldest go; a stage that misses some reads every result again |
| results | trimmed by their stage | the oldest go; an app process that misses some asks for whole results |

Every cell that reads or writes a pipeline maintains it, so it is bounded while any of them runs; write pipelines also while
none does, by ingest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from quaestor.event_layer import offsets
from quaestor.event_layer.bounds import measured
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_names import CellNames
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.cell_stats import UNKNOWN_LAG, PipelineStats
from quaestor.invalidation.grid.checkpoint import CellPosition
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.invalidation.grid.query_retention import QueryRetention
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.ports import EventLayer, PipelineSize

NOTIFICATION_RETENTION_MS: Final = 180_000
"""Longer than a starting app process looks back."""


class PipelineMaintenance:
    """One cell's part in the maintenance of the pipelines around it. Not thread-safe.

    retention: of the query pipeline.
    """

    def __init__(
        self,
        layer: EventLayer,
        node: MatchingNode,
        names: CellNames,
        context: LoopContext,
        *,
        outbox: CellOutbox,
        leases: LeaseHorizon,
        retention: QueryRetention,
    ) -> None:
        self._layer = layer
        self._node = node
        self._names = names
        self._outbox = outbox
        self._leases = leases
        self.retention = retention
        self._bounds = context.bounds
        self._retention_ms = context.retention_ms
        self._passed_ms = 0

    def maintain(self, position: CellPosition, *, waiting: bool, now_ms: int, trim_ms: int) -> list[PipelineStats]:
        """Trim the pipelines. Returns how large each was.

        position: how far this cell has got.
        waiting: query events are.
        trim_ms: the moment to count back from where time decides (layer_clock.py).

        One round trip to each server, however many tenants there are, and more only if something is too large: writes wait
        for it. Raises EventLayerError; what was not done is done the next time.
        """
        said = self._outbox.streams
        said_ms = trim_ms - max(NOTIFICATION_RETENTION_MS, self._retention_ms)
        sizes = measured(self._layer, self._by_time(position, trim_ms) | dict.fromkeys(said, said_ms))
        self._passed_ms = offsets.appended_at_ms(position.queries)
        self._outbox.trimmed(said, before_ms=said_ms, now_ms=trim_ms)
        self.retention.bound(worked_off=position.queries, now_ms=now_ms, size=sizes.get(self._names.queries))
        self._bounds.enforce(self._layer, {name: size for name, size in sizes.items() if name != self._names.queries})
        return list(self._stats(sizes, said, position, waiting, now_ms))

    def _by_time(self, position: CellPosition, now_ms: int) -> dict[str, int | None]:
        """At most what this cell has read, and never the entry that it read last: by that it knows that it has missed none."""
        kept_ms = now_ms - self._retention_ms
        return {
            self._names.writes: min(kept_ms, offsets.appended_at_ms(position.writes)),
            # The partition's other cells get a retention, and at least a round of this, to read what this one has read.
            self._names.queries: min(self._leases.needed_since_ms(now_ms), kept_ms, self._passed_ms),
            self._names.matched: kept_ms,
            self._names.results: None,
        }

    def _stats(
        self, sizes: Mapping[str, PipelineSize], said: Iterable[str], position: CellPosition, waiting: bool, now_ms: int
    ) -> Iterable[PipelineStats]:
        cell = self._node.cell
        shared = {self._names.notifications: "n", self._names.heartbeats: "h"}
        lag_ms = max(0, now_ms - self._node.fresh_as_of_ms)
        waiting_ms = max(0, now_ms - offsets.appended_at_ms(position.queries)) if waiting else 0
        tenants = [sizes[name] for name in said if name in sizes and name not in shared]
        of: list[tuple[str, PipelineSize | None, int]] = [
            (f"w{cell.write_partition}", sizes.get(self._names.writes), lag_ms),
            (f"q{cell.query_partition}", sizes.get(self._names.queries), waiting_ms),
            (f"m{cell.query_partition}", sizes.get(self._names.matched), UNKNOWN_LAG),
            (f"r{cell.query_partition}", sizes.get(self._names.results), UNKNOWN_LAG),
            *((pipeline, sizes.get(name), UNKNOWN_LAG) for name, pipeline in shared.items()),
            ("t", max(tenants, key=lambda size: size.bytes, default=None), UNKNOWN_LAG),
        ]
        for name, size, lag in of:
            if size is not None:
                yield PipelineStats(pipeline=name, entries=size.entries, bytes=size.bytes, lag_ms=lag)
