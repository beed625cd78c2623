"""A cell's care of the pipelines around it, once a second: what is too old or too much goes, and how large they are is measured.

| pipeline | by time | by size |
|---|---|---|
| write | older than the retention, and read by this cell | the oldest go; a cell that misses some invalidates everything |
| query | no lease lasts so long, and read by this cell | what lives in the oldest part is given up first (query_retention.py) |
| notification | older than any reader looks back | the oldest go; an app process that misses some drops what it has stored |
| matched | older than the retention | the oldest go; a stage that misses some reads every result again |
| results | trimmed by their stage | the oldest go; an app process that misses some asks for whole results |

Every cell that reads or writes a pipeline looks after it, so it is bounded while any of them runs; write pipelines also while
none does, by ingest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from quaestor.event_layer import offsets, streams
from quaestor.event_layer.bounds import PipelineBounds, measured
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.cell_stats import UNKNOWN_LAG, PipelineStats
from quaestor.invalidation.grid.checkpoint import Checkpoint, LongestLeases
from quaestor.invalidation.grid.query_retention import QueryRetention
from quaestor.invalidation.grid.resizing.succession import Succession
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cell, GridShape, Notification
from quaestor.ports import EventLayer, PipelineSize

NOTIFICATION_RETENTION_MS: Final = 180_000
"""Longer than a starting app process looks back."""


class PipelineMaintenance:
    """Not thread-safe.

    room: of the query pipeline.
    """

    def __init__(
        self,
        layer: EventLayer,
        node: MatchingNode,
        cell: Cell,
        shape: GridShape,
        *,
        deployment: str,
        out: CellOutbox,
        leases: LongestLeases,
        succession: Succession,
        bounds: PipelineBounds,
        retention_ms: int,
    ) -> None:
        column, generation = cell.query_partition, shape.generation
        self._layer = layer
        self._node = node
        self._cell = cell
        self._out = out
        self._leases = leases
        self._bounds = bounds
        self._retention_ms = retention_ms
        self._writes = streams.writes(deployment, cell.write_partition, generation)
        self._queries = streams.queries(deployment, column, generation)
        self._matched = streams.matched(deployment, column, generation)
        self._results = streams.results(deployment, column, generation)
        self._own = {streams.notifications(deployment): "n", streams.heartbeats(deployment): "h"}
        self._passed_ms = 0
        self.room = QueryRetention(
            layer, self._queries, node, succession, leases, deployment=deployment, bounds=bounds, tell=self._tell
        )

    def look_after(self, position: Checkpoint, *, waiting: bool, now_ms: int, trim_ms: int) -> list[PipelineStats]:
        """Trim; returns how large each pipeline was.

        position: how far this cell has got.
        waiting: query events are.
        trim_ms: the moment to count back from where time decides (layer_clock.py).

        One round trip to each server, however many tenants there are, and more only if something is too large: writes wait
        for it. Raises EventLayerError; what was not done is done the next time.
        """
        said = self._out.streams
        said_ms = trim_ms - max(NOTIFICATION_RETENTION_MS, self._retention_ms)
        sizes = measured(self._layer, self._by_time(position, trim_ms) | dict.fromkeys(said, said_ms))
        self._passed_ms = offsets.appended_at_ms(position.queries)
        self._out.trimmed(said, before_ms=said_ms, now_ms=trim_ms)
        self.room.make(worked_off=position.queries, now_ms=now_ms, size=sizes.get(self._queries))
        self._bounds.enforce(self._layer, {name: size for name, size in sizes.items() if name != self._queries})
        return list(self._told(sizes, said, position, waiting, now_ms))

    def _by_time(self, position: Checkpoint, now_ms: int) -> dict[str, int | None]:
        """At most what this cell has read, and never the entry that it read last: by that it knows that it has missed none."""
        kept_ms = now_ms - self._retention_ms
        return {
            self._writes: min(kept_ms, offsets.appended_at_ms(position.writes)),
            # The other cells of the column get a retention, and at least a round of this, to read what this one has read.
            self._queries: min(self._leases.needed_since_ms(now_ms), kept_ms, self._passed_ms),
            self._matched: kept_ms,
            self._results: None,
        }

    def _told(
        self, sizes: Mapping[str, PipelineSize], said: Iterable[str], position: Checkpoint, waiting: bool, now_ms: int
    ) -> Iterable[PipelineStats]:
        column, row = self._cell.query_partition, self._cell.write_partition
        lag_ms = max(0, now_ms - self._node.fresh_as_of_ms)
        waiting_ms = max(0, now_ms - offsets.appended_at_ms(position.queries)) if waiting else 0
        tenants = [sizes[name] for name in said if name in sizes and name not in self._own]
        of: list[tuple[str, PipelineSize | None, int]] = [
            (f"w{row}", sizes.get(self._writes), lag_ms),
            (f"q{column}", sizes.get(self._queries), waiting_ms),
            (f"m{column}", sizes.get(self._matched), UNKNOWN_LAG),
            (f"r{column}", sizes.get(self._results), UNKNOWN_LAG),
            *((pipeline, sizes.get(name), UNKNOWN_LAG) for name, pipeline in self._own.items()),
            ("t", max(tenants, key=lambda size: size.bytes, default=None), UNKNOWN_LAG),
        ]
        for name, size, lag in of:
            if size is not None:
                yield PipelineStats(pipeline=name, entries=size.entries, bytes=size.bytes, lag_ms=lag)

    def _tell(self, notifications: Iterable[Notification]) -> None:
        self._out.say(notifications)
        self._out.send()
