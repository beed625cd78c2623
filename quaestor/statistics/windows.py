"""Tumbling windows: their counts, as a query of Structured Streaming.

Event time is the time of an entry's append to its pipeline. A window is final once every pipeline was read past its end; the
watermark reports that, and the window's state is dropped. For each collection and query a window holds one
row of sums, and a sketch of the most frequent records (Spark's approx_top_k: DataSketches' frequent items). The sketch is
bounded at any number of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from quaestor.statistics.rows import KIND, MEASURES
from quaestor.tables.log import Table
from quaestor.tables.spark_batches import append

PARTITION_BY: Final = ("date", "window_s")
KEY: Final = ("start", "window_s", "scope", "name")


def windowed(events: Any, *, lengths_s: Sequence[int], lateness_s: int, top: int, tracked: int) -> Any:
    """Return the windows of a stream: rows (start, window_s, scope, name, one column for each measure, top), each when final.

    events: a stream of the source's event rows.
    top: [(item, count)], at most `top`, most frequent first.
    """
    marked = events.withWatermark("at", f"{lateness_s} seconds")
    return reduce(
        lambda first, other: first.unionByName(other),
        (_of_length(marked, length_s, top, tracked) for length_s in lengths_s),
    )


def _of_length(events: Any, length_s: int, top: int, tracked: int) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    sums = [
        F.coalesce(F.sum(F.when(F.col("measure") == measure, F.col("n"))), F.lit(0)).alias(measure)
        for measure in MEASURES
    ]
    frequent = F.expr(f"approx_top_k(item, {top}, {tracked})").alias("top")
    counted = events.groupBy(F.window("at", f"{length_s} seconds"), "scope", "name").agg(*sums, frequent)
    return counted.select(
        F.col("window.start").alias("start"),
        F.lit(length_s).alias("window_s"),
        "scope",
        "name",
        *MEASURES,
        F.filter("top", lambda entry: entry["item"].isNotNull()).alias("top"),
    )


def add_batch(table: Table, frame: Any, *, query: str, batch: int, now_ms: int) -> bool:
    """Add a batch of final windows, once; see append."""
    from pyspark.sql import functions as F  # noqa: N812

    dated = frame.withColumn("date", F.date_format("start", "yyyy-MM-dd"))
    return append(table, dated, query=query, batch=batch, partition_by=PARTITION_BY, now_ms=now_ms)


def busiest(frame: Any, *, most: int) -> list[Any]:
    """Return the rows of a batch to show: in each window, for each scope except the kinds, the rows with the highest counts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    total = reduce(lambda first, other: first + other, (F.abs(F.col(measure)) for measure in MEASURES))
    place = F.row_number().over(Window.partitionBy("start", "window_s", "scope").orderBy(total.desc(), "name"))
    shown = frame.where(F.col("scope") != KIND)
    return list(shown.withColumn("place", place).where(F.col("place") <= most).drop("place").collect())
