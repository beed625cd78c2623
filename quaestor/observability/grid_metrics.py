"""Metrics of the matching grid and its pipelines, as one process sees them."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class GridMetrics:
    """Lag, registrations and pipelines.

    registrations: live ones of this process.
    serving: 1 while anything may be served.
    elected: 1 while this process runs the grid for all.
    lag_s: of the slowest node.
    partition_lag_ms: of a query partition's slowest cell.
    pipeline_entries, pipeline_bytes, pipeline_lag_ms: by pipeline.
    journal_flushes: asked for by this process's ingest, by whether they helped.
    activation_s: registration sent to activated by every cell.
    """

    def __init__(self, families: Families) -> None:
        self.registrations = families.gauge("registrations", "live registrations of this process")
        self.serving = families.gauge(
            "serving", "1 while cached responses may be served, of one query partition at least"
        )
        self.elected = families.gauge(
            "elected", "1 while this process runs the matching for all processes of its deployment"
        )
        self.lag_s = families.gauge("grid_lag_seconds", "how far the slowest matching node lags behind the database")
        self.partition_lag_ms = families.gauges(
            "column_lag_ms", "how far a query partition's slowest cell lags", column=None
        )
        self.pipeline_entries = families.gauges("pipeline_entries", "entries in a pipeline", pipeline=None)
        self.pipeline_bytes = families.gauges("pipeline_bytes", "bytes in a pipeline", pipeline=None)
        self.pipeline_lag_ms = families.gauges("pipeline_lag_ms", "how far its reader lags", pipeline=None)
        self.journal_flushes = families.counters(
            "journal_flushes", "journal flushes that ingest asked mongod for", outcome=vocabularies.FLUSHES
        )
        self.activation_s = families.histogram("activation_seconds", "registration sent to activated by every cell")
