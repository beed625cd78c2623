"""Choice of the executor: DuckDB in this process, Spark, or by the size of what a query reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Self

import pyarrow as pa
from sqlglot import exp

from quaestor.continuous.executors.duckdb import LIMIT_S, DuckDbExecutor
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.executors.spark import SparkExecutor
from quaestor.continuous.executors.spark_session import spark_session
from quaestor.continuous.executors.stored import StoredRows

_UNITS: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class ExecutorBySize(Executor):
    """Executor that uses one engine up to a size, and another engine above it.

    most_bytes: size of the files of a query's tables up to which the small engine executes the query.
    """

    def __init__(self, small: Executor, large: Executor, most_bytes: int) -> None:
        self._small = small
        self._large = large
        self._most_bytes = most_bytes

    def rows(
        self, expression: exp.Query, tau: int | None, t: int, snapshots: Mapping[str, pa.Table | StoredRows]
    ) -> pa.Table:
        """Return the rows of an expression. See `Executor.rows`."""
        size = sum(_size(rows) for rows in snapshots.values())
        executor = self._small if size <= self._most_bytes else self._large
        return executor.rows(expression, tau, t, snapshots)

    def close(self) -> None:
        """Close both engines."""
        self._small.close()
        self._large.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def executor_of(choice: str, spark_master: str, *, limit_s: float = LIMIT_S, threads: int | None = None) -> Executor:
    """Return the executor of the settings. Spark starts at the first query that needs it.

    choice: `duckdb`, `spark`, or a size above which Spark executes a query, such as `10GB`.
    limit_s, threads: longest time of a query in DuckDB, and its most threads; see DuckDbExecutor.
    """
    in_process = partial(DuckDbExecutor, limit_s=limit_s, threads=threads)
    if choice == "duckdb":
        return in_process()
    spark = SparkExecutor(partial(spark_session, spark_master))
    return spark if choice == "spark" else ExecutorBySize(in_process(), spark, bytes_of(choice))


def bytes_of(size: str) -> int:
    """Return the bytes of a size, such as `10GB`."""
    number, unit = re.fullmatch(r"([\d.]+) ?([KMGT]B)", size).groups()  # type: ignore[union-attr]  # the setting's form
    return int(float(number) * _UNITS[unit])


def _size(rows: Any) -> int:
    return int(rows.size_bytes if isinstance(rows, StoredRows) else rows.nbytes)
