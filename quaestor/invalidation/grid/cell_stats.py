"""Figures of each cell, reported once a second for operators: a small value in the event layer, on which nothing depends.

| field | meaning |
|---|---|
| v, t | format 1, `s` |
| cell, shape, at | the cell, its grid's shape, the time of the figures (ms since the epoch) |
| q, r, b | queries and registrations held, and their estimated bytes |
| w, try, fail, evict | since the cell started: writes matched, predicates tried, failed ones, registrations evicted |
| wps, tpw | over the last period: writes per second, predicates tried per write |
| p50, p99 | over the last period: ms from the database's write to its matching; -1 without writes |
| rss | resident memory of the cell's process, in bytes; 0 where the system does not report it |
| pipe | the pipelines around it at the last look: [name, entries, bytes, lag in ms; -1: not known to this cell] |
| cap | bounds of a pipeline: [entries, bytes]; 0: not reported |
| ten | the largest tenants: [name, registrations, bytes, predicates tried per second, predicates failed] |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import bson
from bson.errors import BSONError

from quaestor.event_layer import streams
from quaestor.event_layer.shapes import decode_shape, encode_shape
from quaestor.model import Cell, GridShape
from quaestor.ports import EventLayer

_FORMAT: Final = 1
_MOST_CELLS: Final = 4_096
UNKNOWN_LAG: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStats:
    """One tenant's use of a cell.

    tried_per_s: number of its predicates that writes try, per second.
    failed: number of their failures, since the tenant came.
    """

    tenant: str
    registrations: int
    bytes: int
    tried_per_s: float
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStats:
    """Size of one pipeline around a cell.

    pipeline: w and q with the partition for write and query pipelines, m and r for matched writes of subscriptions and their
        results; n notifications, h heartbeats, t the largest notification pipeline of another tenant that the cell has
        measured.
    lag_ms: lag of this cell as its reader; UNKNOWN_LAG: other parts read it.
    """

    pipeline: str
    entries: int
    bytes: int
    lag_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStats:
    """Figures of one cell as of at_ms; see the table above. An ended cell leaves its last value, so check its age."""

    cell: Cell
    shape: GridShape
    at_ms: int
    queries: int
    registrations: int
    bytes: int
    writes: int
    tried: int
    failed: int
    evicted: int
    writes_per_s: float
    tried_per_write: float
    lag_p50_ms: float
    lag_p99_ms: float
    rss_bytes: int
    tenants: tuple[TenantStats, ...] = ()
    pipelines: tuple[PipelineStats, ...] = ()
    pipeline_max_entries: int = 0
    pipeline_max_bytes: int = 0

    @property
    def bytes_each(self) -> float:
        """Bytes per registration, with its query, its members and its entries in the index; 0 without registrations."""
        return self.bytes / self.registrations if self.registrations else 0.0


def cell_stats(layer: EventLayer, deployment: str) -> list[CellStats]:
    """Return the last figures of the current grid's cells, in the order of the cells; cells without figures are missing.

    Reads one value for each cell. Raises EventLayerError.
    """
    shape = _shape(layer, deployment)
    if shape is None:
        return []
    said = (_read(layer, deployment, cell, shape.generation) for cell in shape.cells[:_MOST_CELLS])
    return [stats for stats in said if stats is not None and stats.shape == shape]


def _shape(layer: EventLayer, deployment: str) -> GridShape | None:
    """Return the shape of the latest grid; without a grid on a cluster, the shape that the first cell reports."""
    value = layer.get(streams.grid(deployment))
    if value is not None:
        return decode_shape(bson.decode(value)["shape"])
    first = _read(layer, deployment, Cell(query_partition=0, write_partition=0), 0)
    return None if first is None else first.shape


def _read(layer: EventLayer, deployment: str, cell: Cell, generation: int) -> CellStats | None:
    value = layer.get(streams.stats(deployment, cell, generation))
    return None if value is None else decode_stats(value)


def encode_stats(stats: CellStats) -> bytes:
    """Return the figures as BSON, the value for the event layer."""
    cell, shape = stats.cell, stats.shape
    return bson.encode(
        {
            "v": _FORMAT, "t": "s", "cell": [cell.query_partition, cell.write_partition],
            "shape": encode_shape(shape), "at": stats.at_ms,
            "q": stats.queries, "r": stats.registrations, "b": stats.bytes,
            "w": stats.writes, "try": stats.tried, "fail": stats.failed, "evict": stats.evicted,
            "wps": stats.writes_per_s, "tpw": stats.tried_per_write,
            "p50": stats.lag_p50_ms, "p99": stats.lag_p99_ms, "rss": stats.rss_bytes,
            "pipe": [[pipeline.pipeline, pipeline.entries, pipeline.bytes, pipeline.lag_ms] for pipeline in stats.pipelines],
            "cap": [stats.pipeline_max_entries, stats.pipeline_max_bytes],
            "ten": [
                [tenant.tenant, tenant.registrations, tenant.bytes, tenant.tried_per_s, tenant.failed]
                for tenant in stats.tenants
            ],
        }
    )  # fmt: skip


def decode_stats(value: bytes) -> CellStats | None:
    """Return the figures in a value; None for another format: only operators read it, so no caller should fail."""
    try:
        fields: dict[str, Any] = bson.decode(value)
        if fields["v"] != _FORMAT:
            return None
        query_partition, write_partition = fields["cell"]
        most_entries, most_bytes = fields.get("cap", (0, 0))
        return CellStats(
            cell=Cell(query_partition=query_partition, write_partition=write_partition),
            shape=decode_shape(fields["shape"]),
            at_ms=int(fields["at"]),
            queries=fields["q"],
            registrations=fields["r"],
            bytes=fields["b"],
            writes=fields["w"],
            tried=fields["try"],
            failed=fields["fail"],
            evicted=fields["evict"],
            writes_per_s=fields["wps"],
            tried_per_write=fields["tpw"],
            lag_p50_ms=fields["p50"],
            lag_p99_ms=fields["p99"],
            rss_bytes=fields["rss"],
            tenants=tuple(
                TenantStats(
                    tenant=tenant, registrations=registrations, bytes=size, tried_per_s=tried_per_s, failed=failed
                )
                for tenant, registrations, size, tried_per_s, failed in fields["ten"]
            ),
            pipelines=tuple(
                PipelineStats(pipeline=name, entries=entries, bytes=size, lag_ms=lag_ms)
                for name, entries, size, lag_ms in fields.get("pipe", ())
            ),
            pipeline_max_entries=most_entries,
            pipeline_max_bytes=most_bytes,
        )
    except (BSONError, KeyError, TypeError, ValueError):
        return None
