"""Metrics of continuous queries."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class ContinuousMetrics:
    """Deliveries of results.

    deliveries: attempts by kind of sink and outcome.
    delivered_rows: confirmed rows, by kind of sink.
    delivery_failures: failed attempts, by kind of sink and reason.
    dead_letters: batches that wait for an operator.
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
        self.dead_letters = families.gauge("continuous_dead_letters", "batches that wait for an operator")
