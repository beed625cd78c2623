"""History: every write of the change stream once, in Parquet by day and collection."""

from __future__ import annotations

from typing import Any, Final

from quaestor.tables.log import Table
from quaestor.tables.spark_batches import append

PARTITION_BY: Final = ("date", "collection")
_PLAIN: Final = "^[A-Za-z0-9_.-]{1,120}$"
_OTHERS: Final = "[^A-Za-z0-9_.-]"


def by_day_and_collection(frame: Any) -> Any:
    """Return rows with the columns that partition the history.

    The columns are `date` (UTC, time of the write in the database) and `collection`. The latter is the namespace, or a form
    of it that can be a folder's name; the column `namespace` is exact."""
    from pyspark.sql import functions as F  # noqa: N812

    namespace = F.col("namespace")
    other = F.concat(
        F.substring(F.regexp_replace(namespace, _OTHERS, "_"), 1, 80),
        F.lit("~"),
        F.substring(F.sha2(namespace, 256), 1, 12),
    )
    day = F.to_date(F.timestamp_millis(F.col("wall_ms")))
    return frame.withColumn("date", F.date_format(day, "yyyy-MM-dd")).withColumn(
        "collection", F.when(namespace.rlike(_PLAIN), namespace).otherwise(other)
    )


def add_batch(table: Table, frame: Any, *, query: str, batch: int, now_ms: int) -> bool:
    """Add a batch of the source's rows, once; see append."""
    sorted_rows = by_day_and_collection(frame)
    return append(table, sorted_rows, query=query, batch=batch, partition_by=PARTITION_BY, now_ms=now_ms)
