"""Metrics of tables that are filled from collections."""

from __future__ import annotations

from quaestor.observability.families import Families


class TableMetrics:
    """Filling of tables, by the name of the table.

    versions: versions of records that were appended.
    refused: values without a place in their column.
    gaps: times that versions were lost, because the change stream could not be resumed.
    lag: age of the newest appended write, in seconds; 0 while no write waits.
    """

    def __init__(self, families: Families) -> None:
        self.versions = families.counters("table_versions", "versions of records appended to a table", table=None)
        self.refused = families.counters(
            "table_values_refused", "values that have another type than their column, and are NULL there", table=None
        )
        self.gaps = families.counters(
            "table_gaps", "times that a change stream could not be resumed, and versions were lost", table=None
        )
        self.lag = families.gauges("table_lag_seconds", "age of the newest write that was appended", table=None)
