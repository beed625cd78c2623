"""Status of the grid, from the grid's own reports in the event layer, for `quaestor cluster status`.

The status has two sources. Heartbeats of the last seconds show whether a cell is alive, and how far behind it is. Once a second
each cell and each stage reports its figures; cells also report on the pipelines around them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from quaestor.cli.cluster_totals import Pipeline, pipelines
from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError, EventLayerError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.cell_processes import CellProcess, cell_processes
from quaestor.invalidation.grid.cell_stats import UNKNOWN_LAG, CellStats, cell_stats
from quaestor.model import Cell, GridShape, Heartbeat
from quaestor.ports import EventLayer
from quaestor.realtime.stats import UNKNOWN_LAG as UNKNOWN_STAGE_LAG
from quaestor.realtime.stats import StageStats, stage_stats
from quaestor.settings import Settings

WINDOW_MS = 5_000
"""A cell that was silent for this long is shown as silent."""
_COLUMNS = (
    "cell", "state", "lag ms", "queries", "registrations", "writes/s", "p50 ms", "p99 ms", "evicted", "B each",
    "memory MB", "restarts",
)  # fmt: skip
_OF_STAGES = (
    "stage", "state", "lag ms", "subscribed queries", "subscriptions", "behind", "matched/s", "read anew", "refused", "MB",
)  # fmt: skip
_OF_PIPELINES = ("pipeline", "entries", "MB", "of its bound", "lag ms")
_PIPELINES = {
    "w": "writes", "q": "queries", "m": "matched", "r": "results", "n": "notifications", "h": "heartbeats",
    "t": "a tenant's notifications",
}  # fmt: skip
_BATCH = 2_000
_MOST_BATCHES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatus:
    """Status of one cell.

    lag_ms: how far the cell is behind the database; None: silent.
    stats: its last report on its work, if there is one.

    restarts: how often its process was replaced since the grid was started; None: not reported (embedded, or never
        heard of).
    """

    cell: Cell
    lag_ms: int | None
    registrations: int
    stats: CellStats | None
    restarts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Status of the grid of one deployment.

    shape: None if no grid was ever heard of.
    stages: last reports of the stages of subscribed queries, of every stage that ever reported. Reports of silent stages are
        older than WINDOW_MS at at_ms.
    """

    deployment: str
    at_ms: int
    shape: GridShape | None
    cells: tuple[CellStatus, ...]
    stages: tuple[StageStats, ...] = ()

    def healthy(self, staleness_bound_ms: int) -> bool:
        """Whether every cell is heard, and fresh enough for answers to be served from cache."""
        return bool(self.cells) and all(
            cell.lag_ms is not None and cell.lag_ms <= staleness_bound_ms for cell in self.cells
        )


def run(settings: Settings, *, form: Callable[[ClusterStatus], str]) -> tuple[str, bool]:
    """Text to print, and whether the grid is healthy. Raises ConfigurationError without redis_url, EventLayerError.

    form: makes the text: `text`, `to_json` or another function.
    """
    if settings.redis_url is None:
        raise ConfigurationError("the grid's figures are in Redis: pass --redis-url or set REDIS_URL")
    with closing(event_layer(settings.redis_url, settings.deployment)) as layer:
        status = look(layer, settings.deployment, now_ms=system_clock())
    return form(status), status.healthy(settings.grid.staleness_bound_ms)


def look(layer: EventLayer, deployment: str, *, now_ms: int) -> ClusterStatus:
    """Status of the grid of a deployment as of now.

    O(heartbeats of WINDOW_MS), bounded. Raises EventLayerError.
    """
    beats = _heartbeats(layer, deployment, now_ms)
    reported = cell_stats(layer, deployment)
    processes = cell_processes(layer, deployment)
    newest = max(beats.values(), key=lambda beat: beat.at_ms, default=None)
    shape = newest.shape if newest is not None else next((of_cell.shape for of_cell in reported), None)
    if shape is None:
        return ClusterStatus(deployment=deployment, at_ms=now_ms, shape=None, cells=())
    stats = {of_cell.cell: of_cell for of_cell in reported if of_cell.shape == shape}
    cells = [
        Cell(query_partition=query_partition, write_partition=write_partition)
        for query_partition in range(shape.query_partitions)
        for write_partition in range(shape.write_partitions)
    ]
    return ClusterStatus(
        deployment=deployment,
        at_ms=now_ms,
        shape=shape,
        stages=tuple(stage_stats(layer, deployment, shape)),
        cells=tuple(_status(cell, beats.get(cell), stats.get(cell), processes.get(cell), now_ms) for cell in cells),
    )


def _status(
    cell: Cell, beat: Heartbeat | None, stats: CellStats | None, process: CellProcess | None, now_ms: int
) -> CellStatus:
    return CellStatus(
        cell=cell,
        lag_ms=None if beat is None else max(0, now_ms - beat.fresh_as_of_ms),
        registrations=beat.registrations if beat is not None else stats.registrations if stats is not None else 0,
        stats=stats,
        restarts=None if process is None else process.starts - 1,
    )


def _heartbeats(layer: EventLayer, deployment: str, now_ms: int) -> Mapping[Cell, Heartbeat]:
    stream = streams.heartbeats(deployment)
    after = layer.offset_at(stream, now_ms - WINDOW_MS)
    newest: dict[Cell, Heartbeat] = {}
    for _ in range(_MOST_BATCHES):
        entries = layer.read({stream: after}, count=_BATCH, block_ms=0)
        for entry in entries:
            after = entry.offset
            try:
                notification = decode_notification(entry.payload)
            except EventLayerError:
                continue  # from another version: the process that receives it handles it
            if isinstance(notification, Heartbeat):
                newest[notification.cell] = notification
        if len(entries) < _BATCH:
            break
    return newest


def text(status: ClusterStatus) -> str:
    """Three tables: a line for each cell, for each stage and for each pipeline."""
    if status.shape is None:
        return (
            f"no grid was heard of in deployment {status.deployment!r}: app processes elect one of them to run it when they "
            "start, or start one with quaestor grid or quaestor cluster"
        )
    shape = status.shape
    head = f"deployment {status.deployment}: {shape.query_partitions} query x {shape.write_partitions} write partitions"
    lines = [head, *_table([_COLUMNS, *(_row(cell) for cell in status.cells)])]
    if status.stages:
        lines += ["", *_table([_OF_STAGES, *(_stage_row(stage, status.at_ms) for stage in status.stages)])]
    sizes = pipelines(cell.stats for cell in status.cells if cell.stats is not None)
    if sizes:
        lines += ["", *_table([_OF_PIPELINES, *(_pipeline_row(pipeline) for pipeline in sizes)])]
    return "\n".join(lines)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(value.rjust(width) for value, width in zip(row, widths, strict=True)) for row in rows]


def _stage_row(stage: StageStats, at_ms: int) -> tuple[str, ...]:
    return (
        str(stage.query_partition), "silent" if at_ms - stage.at_ms > WINDOW_MS else "running",
        "" if stage.lag_ms == UNKNOWN_STAGE_LAG else str(stage.lag_ms), f"{stage.queries:,}", f"{stage.subscriptions:,}",
        f"{stage.behind:,}", f"{stage.matched_per_s:,.0f}", f"{stage.renewals:,}", f"{stage.refused:,}",
        f"{stage.bytes / 1e6:,.1f}",
    )  # fmt: skip


def _pipeline_row(pipeline: Pipeline) -> tuple[str, ...]:
    size = pipeline.size
    lag = "" if size.lag_ms == UNKNOWN_LAG else str(size.lag_ms)
    return (_named(size.pipeline), f"{size.entries:,}", f"{size.bytes / 1e6:,.1f}", f"{pipeline.share:.1%}", lag)


def _named(pipeline: str) -> str:
    kind, partition = pipeline[:1], pipeline[1:]
    return f"{_PIPELINES.get(kind, kind)} {partition}".rstrip()


def _row(cell: CellStatus) -> tuple[str, ...]:
    stats = cell.stats
    name = f"{cell.cell.query_partition}/{cell.cell.write_partition}"
    state = "silent" if cell.lag_ms is None else "running"
    lag = "" if cell.lag_ms is None else str(cell.lag_ms)
    restarts = "" if cell.restarts is None else str(cell.restarts)
    if stats is None:
        return (name, state, lag, "", str(cell.registrations), "", "", "", "", "", "", restarts)
    return (
        name, state, lag, f"{stats.queries:,}", f"{cell.registrations:,}", f"{stats.writes_per_s:,.0f}",
        _latency(stats.lag_p50_ms), _latency(stats.lag_p99_ms), f"{stats.evicted:,}",
        f"{stats.bytes_each:,.0f}" if stats.registrations else "",
        f"{stats.rss_bytes / 1e6:,.0f}" if stats.rss_bytes else "", restarts,
    )  # fmt: skip


def _latency(ms: float) -> str:
    return "" if ms < 0 else f"{ms:.1f}"


def to_json(status: ClusterStatus) -> str:
    """One JSON object on one line."""
    shape = status.shape
    return json.dumps(
        {
            "deployment": status.deployment,
            "shape": shape and [shape.query_partitions, shape.write_partitions],
            "generation": shape and shape.generation,
            "cells": [_as_json(cell) for cell in status.cells],
            "stages": [_stage_as_json(stage) for stage in status.stages],
            "pipelines": [
                {
                    "name": _named(pipeline.size.pipeline),
                    "entries": pipeline.size.entries,
                    "bytes": pipeline.size.bytes,
                    "share": pipeline.share,
                    "lag_ms": None if pipeline.size.lag_ms == UNKNOWN_LAG else pipeline.size.lag_ms,
                }
                for pipeline in pipelines(cell.stats for cell in status.cells if cell.stats is not None)
            ],
        }
    )


def _stage_as_json(stage: StageStats) -> Mapping[str, object]:
    return {
        "query_partition": stage.query_partition, "told_at_ms": stage.at_ms,
        "lag_ms": None if stage.lag_ms == UNKNOWN_STAGE_LAG else stage.lag_ms, "queries": stage.queries,
        "subscriptions": stage.subscriptions, "bytes": stage.bytes, "behind": stage.behind, "renewals": stage.renewals,
        "matched": stage.matched, "matched_per_s": stage.matched_per_s, "refused": stage.refused,
        "tenants": [
            {"name": tenant.tenant, "queries": tenant.queries, "subscriptions": tenant.subscriptions, "bytes": tenant.bytes}
            for tenant in stage.tenants
        ],
    }  # fmt: skip


def _as_json(cell: CellStatus) -> Mapping[str, object]:
    stats = cell.stats
    fields: dict[str, object] = {
        "cell": [cell.cell.query_partition, cell.cell.write_partition],
        "lag_ms": cell.lag_ms,
        "registrations": cell.registrations,
        "restarts": cell.restarts,
    }
    if stats is not None:
        tenants: Sequence[Mapping[str, object]] = [
            {
                "name": tenant.tenant,
                "registrations": tenant.registrations,
                "bytes": tenant.bytes,
                "tried_per_s": tenant.tried_per_s,
            }
            for tenant in stats.tenants
        ]
        fields |= {
            "told_at_ms": stats.at_ms, "queries": stats.queries, "bytes": stats.bytes,
            "bytes_per_registration": round(stats.bytes_each), "writes": stats.writes,
            "writes_per_s": stats.writes_per_s, "tried_per_write": stats.tried_per_write, "failed": stats.failed,
            "evicted": stats.evicted, "p50_ms": stats.lag_p50_ms, "p99_ms": stats.lag_p99_ms,
            "rss_bytes": stats.rss_bytes, "tenants": tenants,
        }  # fmt: skip
    return fields
