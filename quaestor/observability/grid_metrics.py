"""Metrics of the matching grid and its pipelines, in the view of one process."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class GridMetrics:
    """Lag, registrations and pipelines.

    registrations: live registrations of this process.
    serving: 1 while the cache may serve.
    elected: 1 while this process runs the grid for all.
    lag_s: lag of the slowest node.
    partition_lag_ms: lag of a query partition's slowest cell.
    pipeline_entries, pipeline_bytes, pipeline_lag_ms: by pipeline.
    journal_flushes: flushes requested by this process's ingest, by their effect.
    activation_s: from a registration sent to its activation by every cell.
    """

    def __init__(self, families: Families) -> None:
        self.registrations = families.gauge("registrations", "live registrations of this process")
        self.serving = families.gauge(
            "serving", "1 while the cache may serve responses of at least one query partition"
        )
        self.elected = families.gauge(
            "elected", "1 while this process runs the matching for all processes of its deployment"
        )
        self.lag_s = families.gauge("grid_lag_seconds", "lag of the slowest matching node behind the database")
        self.partition_lag_ms = families.gauges("column_lag_ms", "lag of a query partition's slowest cell", column=None)
        self.pipeline_entries = families.gauges("pipeline_entries", "entries in a pipeline", pipeline=None)
        self.pipeline_bytes = families.gauges("pipeline_bytes", "bytes in a pipeline", pipeline=None)
        self.pipeline_lag_ms = families.gauges("pipeline_lag_ms", "lag of the pipeline's reader", pipeline=None)
        self.journal_flushes = families.counters(
            "journal_flushes", "journal flushes that ingest requested from mongod", outcome=vocabularies.FLUSHES
        )
        self.activation_s = families.histogram(
            "activation_seconds", "from a registration sent to its activation by every cell"
        )
