"""Metrics of the grid for Prometheus, from the figures that cells and stages report in the event layer.

On Spark, cells and stages run in processes that Prometheus cannot scrape. One process therefore reads the reports of all of
them: the driver (`quaestor cluster --metrics-port`), or each call of `quaestor cluster status --prometheus`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from quaestor.cli.cluster_status import CellStatus, ClusterStatus, look
from quaestor.cli.cluster_totals import pipelines, tenants
from quaestor.clock import system_clock
from quaestor.errors import EventLayerError
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.cell_stats import UNKNOWN_LAG
from quaestor.observability.metrics_server import MetricsServer
from quaestor.realtime.stats import UNKNOWN_LAG as UNKNOWN_STAGE_LAG
from quaestor.realtime.stats import StageStats
from quaestor.settings import Settings

_LOOK_AGAIN_S: Final = 1.0
"""Shortest time between two looks. Cells report as often, and a scraper that asks more often gets the same figures."""

_CELL: Final = ("column", "row")
_STAGE: Final = ("column",)
FAMILIES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "quaestor_grid_up": ("1 if the event layer answered", ()),
    "quaestor_grid_generation": ("how often the grid was partitioned anew", ()),
    "quaestor_grid_query_partitions": ("columns of cells", ()),
    "quaestor_grid_write_partitions": ("rows of cells", ()),
    "quaestor_grid_cells": ("cells that the grid has", ()),
    "quaestor_grid_cells_ready": ("cells that are heard of and within the staleness bound", ()),
    "quaestor_cell_lag_ms": ("how far a cell lags behind the database", _CELL),
    "quaestor_cell_silence_ms": ("how long ago a cell reported its figures", _CELL),
    "quaestor_cell_queries": ("queries held", _CELL),
    "quaestor_cell_registrations": ("registrations held", _CELL),
    "quaestor_cell_bytes": ("estimated bytes of queries and registrations", _CELL),
    "quaestor_cell_resident_bytes": ("resident memory of the cell's process", _CELL),
    "quaestor_cell_writes_total": ("writes matched", _CELL),
    "quaestor_cell_writes_per_second": ("writes matched per second", _CELL),
    "quaestor_cell_write_latency_ms": ("from the database's write to its matching", (*_CELL, "quantile")),
    "quaestor_cell_tried_total": ("predicates tried", _CELL),
    "quaestor_cell_failed_total": ("predicates that raised", _CELL),
    "quaestor_cell_evicted_total": ("registrations that a full cell or pipeline removed", _CELL),
    "quaestor_cell_restarts": ("times that the cell's process was replaced since the grid was started", _CELL),
    "quaestor_stage_lag_ms": ("how far the slowest cell that a stage hears lags behind the database", _STAGE),
    "quaestor_stage_silence_ms": ("how long ago a stage reported its figures", _STAGE),
    "quaestor_stage_queries": ("subscribed queries followed", _STAGE),
    "quaestor_stage_subscriptions": ("app processes' subscriptions to them", _STAGE),
    "quaestor_stage_bytes": ("estimated bytes of the results kept", _STAGE),
    "quaestor_stage_behind": ("queries that are being read, or not yet matched by every cell", _STAGE),
    "quaestor_stage_renewals_total": ("results read anew", _STAGE),
    "quaestor_stage_matched_total": ("matched writes applied", _STAGE),
    "quaestor_stage_refused_total": ("subscriptions refused", _STAGE),
    "quaestor_pipeline_entries": ("entries in a pipeline", ("pipeline",)),
    "quaestor_pipeline_bytes": ("bytes in a pipeline", ("pipeline",)),
    "quaestor_pipeline_lag_ms": ("how far its reader lags", ("pipeline",)),
    "quaestor_pipeline_max_entries": ("entries that a pipeline may have", ("pipeline",)),
    "quaestor_pipeline_max_bytes": ("bytes that a pipeline may have", ("pipeline",)),
    "quaestor_tenant_registrations": ("registrations of a tenant", ("tenant",)),
    "quaestor_tenant_bytes": ("estimated bytes of a tenant's queries and registrations", ("tenant",)),
    "quaestor_tenant_tried_per_second": ("predicates of a tenant tried per second", ("tenant",)),
}
"""Help text and labels of each metric. The reader of the figures bounds the number of cells, pipelines and tenants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of a metric family."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


class GridCollector(Collector):
    """Collector of the grid's metrics for `prometheus_client`.

    status: returns None if the event layer does not answer. Safe to use from several threads.
    """

    def __init__(self, status: Callable[[], ClusterStatus | None], *, staleness_bound_ms: int) -> None:
        self._status = status
        self._staleness_bound_ms = staleness_bound_ms
        self._lock = threading.Lock()
        self._looked_s = float("-inf")
        self._known: ClusterStatus | None = None

    def collect(self) -> Iterable[Metric]:
        """Metric families for Prometheus; the event layer is read once per _LOOK_AGAIN_S at most."""
        with self._lock:
            if time.monotonic() - self._looked_s >= _LOOK_AGAIN_S:
                self._known = self._status()
                self._looked_s = time.monotonic()
            status = self._known
        return families(samples(status, staleness_bound_ms=self._staleness_bound_ms, now_ms=system_clock()))


def exposition(status: ClusterStatus, *, staleness_bound_ms: int) -> str:
    """Exposition of the grid's metrics: Prometheus text, made once."""
    registry = CollectorRegistry()
    registry.register(GridCollector(lambda: status, staleness_bound_ms=staleness_bound_ms))
    return generate_latest(registry).decode()


@contextmanager
def served(settings: Settings, *, host: str, port: int) -> Iterator[str]:
    """HTTP server of the metrics of a deployment's grid, until the block is left. Yields its URL.

    Raises ConfigurationError if nothing can listen there. The connection to Redis is made at the first scrape.
    """

    def status() -> ClusterStatus | None:
        try:
            return look(layer, settings.deployment, now_ms=system_clock())
        except EventLayerError:
            return None

    with ExitStack() as cleanup:
        registry = CollectorRegistry()
        server = cleanup.enter_context(MetricsServer(registry, host=host, port=port))
        layer = cleanup.enter_context(closing(event_layer(settings.redis_url or "", settings.deployment)))
        registry.register(GridCollector(status, staleness_bound_ms=settings.grid.staleness_bound_ms))
        server.start()
        yield server.url


def families(values: Iterable[Sample]) -> list[Metric]:
    """Metric families: each of FAMILIES with its samples, in the form that `prometheus_client` wants."""
    made: dict[str, Metric] = {}
    for name, (text, labels) in FAMILIES.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        made[name] = kind(name, text, labels=labels)
    for sample in values:
        made[sample.name].add_metric(sample.labels, sample.value)  # type: ignore[attr-defined]
    return list(made.values())


def samples(status: ClusterStatus | None, *, staleness_bound_ms: int, now_ms: int) -> Iterator[Sample]:
    """Samples of all known figures. O(cells)."""
    yield Sample(name="quaestor_grid_up", value=float(status is not None))
    if status is None or status.shape is None:
        return
    ready = sum(cell.lag_ms is not None and cell.lag_ms <= staleness_bound_ms for cell in status.cells)
    yield Sample(name="quaestor_grid_generation", value=status.shape.generation)
    yield Sample(name="quaestor_grid_query_partitions", value=status.shape.query_partitions)
    yield Sample(name="quaestor_grid_write_partitions", value=status.shape.write_partitions)
    yield Sample(name="quaestor_grid_cells", value=len(status.cells))
    yield Sample(name="quaestor_grid_cells_ready", value=ready)
    for cell in status.cells:
        yield from _of_cell(cell, now_ms)
    for stage in status.stages:
        yield from _of_stage(stage, now_ms)
    known = [cell.stats for cell in status.cells if cell.stats is not None]
    for pipeline in pipelines(known):
        size, labels = pipeline.size, (pipeline.size.pipeline,)
        yield Sample(name="quaestor_pipeline_entries", value=size.entries, labels=labels)
        yield Sample(name="quaestor_pipeline_bytes", value=size.bytes, labels=labels)
        if size.lag_ms != UNKNOWN_LAG:
            yield Sample(name="quaestor_pipeline_lag_ms", value=size.lag_ms, labels=labels)
        yield Sample(name="quaestor_pipeline_max_entries", value=pipeline.max_entries, labels=labels)
        yield Sample(name="quaestor_pipeline_max_bytes", value=pipeline.max_bytes, labels=labels)
    for tenant in tenants(known):
        labels = (tenant.tenant,)
        yield Sample(name="quaestor_tenant_registrations", value=tenant.registrations, labels=labels)
        yield Sample(name="quaestor_tenant_bytes", value=tenant.bytes, labels=labels)
        yield Sample(name="quaestor_tenant_tried_per_second", value=tenant.tried_per_s, labels=labels)


def _of_cell(cell: CellStatus, now_ms: int) -> Iterator[Sample]:
    labels, stats = (str(cell.cell.query_partition), str(cell.cell.write_partition)), cell.stats
    if cell.lag_ms is not None:
        yield Sample(name="quaestor_cell_lag_ms", value=cell.lag_ms, labels=labels)
    if cell.restarts is not None:
        yield Sample(name="quaestor_cell_restarts", value=cell.restarts, labels=labels)
    if stats is None:
        return
    figures = {
        "silence_ms": max(0, now_ms - stats.at_ms), "queries": stats.queries, "registrations": stats.registrations,
        "bytes": stats.bytes, "resident_bytes": stats.rss_bytes, "writes_total": stats.writes,
        "writes_per_second": stats.writes_per_s, "tried_total": stats.tried, "failed_total": stats.failed,
        "evicted_total": stats.evicted,
    }  # fmt: skip
    for name, value in figures.items():
        yield Sample(name=f"quaestor_cell_{name}", value=value, labels=labels)
    for quantile, latency_ms in (("0.5", stats.lag_p50_ms), ("0.99", stats.lag_p99_ms)):
        if latency_ms >= 0:
            yield Sample(name="quaestor_cell_write_latency_ms", value=latency_ms, labels=(*labels, quantile))


def _of_stage(stage: StageStats, now_ms: int) -> Iterator[Sample]:
    labels = (str(stage.query_partition),)
    if stage.lag_ms != UNKNOWN_STAGE_LAG:
        yield Sample(name="quaestor_stage_lag_ms", value=stage.lag_ms, labels=labels)
    figures = {
        "silence_ms": max(0, now_ms - stage.at_ms), "queries": stage.queries, "subscriptions": stage.subscriptions,
        "bytes": stage.bytes, "behind": stage.behind, "renewals_total": stage.renewals, "matched_total": stage.matched,
        "refused_total": stage.refused,
    }  # fmt: skip
    for name, value in figures.items():
        yield Sample(name=f"quaestor_stage_{name}", value=value, labels=labels)
