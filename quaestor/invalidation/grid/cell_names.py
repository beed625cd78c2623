"""Names, in the event layer, of the pipelines and values around one cell."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.event_layer import streams
from quaestor.model import Cell, GridShape


@dataclass(frozen=True, slots=True, kw_only=True)
class CellNames:
    """Names of one cell's pipelines and values; see `quaestor/event_layer/streams.py`.

    queries, writes, early_writes: pipelines that the cell reads.
    matched, results: pipelines of its query partition's subscriptions.
    notifications, heartbeats: pipelines that every cell of the deployment writes.
    checkpoint, stats: the cell's own values.
    """

    queries: str
    writes: str
    early_writes: str
    matched: str
    results: str
    notifications: str
    heartbeats: str
    checkpoint: str
    stats: str

    @classmethod
    def of(cls, deployment: str, cell: Cell, shape: GridShape) -> CellNames:
        """Return the names around this cell of a grid of this shape."""
        generation = shape.generation
        return cls(
            queries=streams.queries(deployment, cell.query_partition, generation),
            writes=streams.writes(deployment, cell.write_partition, generation),
            early_writes=streams.early_writes(deployment, cell.write_partition, generation),
            matched=streams.matched(deployment, cell.query_partition, generation),
            results=streams.results(deployment, cell.query_partition, generation),
            notifications=streams.notifications(deployment),
            heartbeats=streams.heartbeats(deployment),
            checkpoint=streams.checkpoint(deployment, cell, generation),
            stats=streams.stats(deployment, cell, generation),
        )
