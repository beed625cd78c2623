"""Maintenance of the pipelines around a cell, once a second: old and surplus entries go, the rest is measured.

| pipeline | by time | by size |
|---|---|---|
| write | older than the retention, and read by this cell | the oldest go; a cell that misses some invalidates everything |
| query | older than every lease, and read by this cell | living entries of the oldest part are given up first
(query_retention.py) |
| notification | older than any reader looks back | the oldest go; an app process that misses some drops what it has stored |
| matched | older than the retention | the oldest go; a stage that misses some reads every result again |
| results | trimmed by their stage | the oldest go; an app process that misses some requests whole results |

Every cell that reads or writes a pipeline maintains it, so it is bounded while any of them runs. Ingest also bounds write
pipelines while no cell runs.
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
"""Time for which notifications are kept: longer than the look-back of a starting app process."""


class PipelineMaintenance:
    """One cell's part in the maintenance of the pipelines around it. Not thread-safe.

    retention: retention of the query pipeline.
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
        """Trim the pipelines; return the size of each before.

        position: this cell's position.
        waiting: whether query events wait.
        trim_ms: time to count ages from (layer_clock.py).

        One round trip to each server, for any number of tenants, and more only if a pipeline is too large: writes wait for
        it. Raises EventLayerError; the next call then does the rest.
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
        """Return the times before which to trim: within the entries read, without the last, which proves that none was missed."""
        kept_ms = now_ms - self._retention_ms
        return {
            self._names.writes: min(kept_ms, offsets.appended_at_ms(position.writes)),
            # The partition's other cells have a retention, and at least one round, to read the same entries.
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
