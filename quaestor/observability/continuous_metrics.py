"""Metrics of continuous queries."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class ContinuousMetrics:
    """Runs of queries, and deliveries of their results.

    deliveries: attempts by kind of sink and outcome.
    delivered_rows: confirmed rows, by kind of sink.
    delivery_failures: failed attempts, by kind of sink and reason.
    dead_letters: batches that wait for an operator.
    runs: by outcome.
    run_s: duration of a run.
    rows: new results.
    read_rows, read_bytes: amount that runs have read, by source; bytes of the read columns in memory.
    queries: installed queries, by state.
    lag_s: lateness of the latest begun run.
    stretch: factor by which load stretches periods.
    """

    def __init__(self, families: Families) -> None:
        sinks = vocabularies.SINKS
        self.deliveries = families.counters(
            "continuous_deliveries", "attempts to deliver results", sink=sinks, outcome=vocabularies.DELIVERIES
        )
        self.delivered_rows = families.counters("continuous_delivered_rows", "rows that a sink confirmed", sink=sinks)
        self.delivery_failures = families.counters(
            "continuous_delivery_failures", "failed attempts", sink=sinks, reason=vocabularies.DELIVERY_FAILURES
        )
        self.runs = families.counters("continuous_runs", "runs of queries", outcome=vocabularies.RUNS)
        self.run_s = families.histogram("continuous_run_seconds", "duration of a run")
        self.rows = families.counter("continuous_rows", "new results")
        sources = vocabularies.RUN_SOURCES
        self.read_rows = families.counters("continuous_read_rows", "rows that runs have read", source=sources)
        self.read_bytes = families.counters("continuous_read_bytes", "bytes that runs have read", source=sources)
        self.queries = families.gauges("continuous_queries", "installed queries", state=vocabularies.QUERY_STATES)
        self.lag_s = families.gauge("continuous_lag_seconds", "lateness of the latest run")
        self.stretch = families.gauge("continuous_stretch", "factor by which load stretches periods")
        self.dead_letters = families.gauge("continuous_dead_letters", "batches that wait for an operator")
