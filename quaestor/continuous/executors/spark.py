"""Spark SQL as executor: for tables that are too large for one process, and on clusters.

Spark reads the files of versioned tables in a folder itself, each table only for the instants that a query needs. Tables in an
object store, and Arrow tables, come from this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Self

import pyarrow as pa
from sqlglot import exp

from quaestor.continuous.executors.binding import Window, bound, windows
from quaestor.continuous.executors.executor import ExecutionError, Executor
from quaestor.continuous.executors.join_order import newest_first
from quaestor.continuous.executors.nesting import one_level
from quaestor.continuous.executors.spark_files import SparkFiles
from quaestor.continuous.executors.stored import StoredRows
from quaestor.continuous.executors.zones import with_zones
from quaestor.tables.storage import FolderStorage

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.filterPushdown": "true",
}


class SparkExecutor(Executor):
    """Executor on a SparkSession. Calls from several threads take turns.

    session: returns the SparkSession; called at the first query. The executor works in a session of its own beside it, in UTC.
    end: called when the executor is closed.
    """

    def __init__(self, session: Callable[[], Any], *, end: Callable[[], None] = lambda: None) -> None:
        self._start = session
        self._end = end
        self._session: Any = None
        self._files: SparkFiles | None = None
        self._lock = Lock()

    def rows(
        self, expression: exp.Query, tau: int | None, t: int, snapshots: Mapping[str, pa.Table | StoredRows]
    ) -> pa.Table:
        """Return the rows of an expression. See `Executor.rows`."""
        query = one_level(bound(expression, tau, t))
        newest_first(query)
        with self._lock:
            views: dict[tuple[str, Window], str] = {}
            try:
                self._connect()
                self._use_views(query, snapshots, views)
                return with_zones(self._session.sql(query.sql("spark")).toArrow())
            except Exception as error:
                raise _translated(error) from error
            finally:
                for view in views.values():
                    with suppress(Exception):  # a JVM that died takes its views with it
                        self._session.catalog.dropTempView(view)

    def close(self) -> None:
        """End the use of Spark."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> None:
        if self._session is None:
            session = self._start().newSession()
            for name, value in _SETTINGS.items():
                session.conf.set(name, value)
            self._files = SparkFiles(session)
            self._session = session

    def _use_views(
        self,
        query: exp.Query,
        snapshots: Mapping[str, pa.Table | StoredRows],
        views: dict[tuple[str, Window], str],
    ) -> None:
        """Make a view for each table and window, and let the query name the views."""
        for select in list(query.find_all(exp.Select)):
            bounds = windows(select)
            sources = [select.args[part] for part in ("from_",) if select.args.get(part)] + select.args.get("joins", [])
            for table in [source.this for source in sources if isinstance(source.this, exp.Table)]:
                name, alias = _full_name(table), table.alias_or_name
                window = bounds.get(alias, Window())
                view = views.get((name, window))
                if view is None:
                    view = views[name, window] = f"quaestor_{len(views)}"
                    self._frame(snapshots[name], window).createOrReplaceTempView(view)
                table.replace(exp.alias_(exp.table_(view), alias, table=True))

    def _frame(self, rows: pa.Table | StoredRows, window: Window) -> Any:
        if isinstance(rows, StoredRows):
            if isinstance(rows.table.table.storage, FolderStorage) and self._files is not None:
                return self._files.frame(rows, window)
            rows = rows.arrow()
        return self._session.createDataFrame(_in_one_piece(with_zones(rows)))


def _in_one_piece(rows: pa.Table) -> pa.Table:
    """Return a table whose columns are one chunk each: PySpark loses the rows behind an empty chunk, and a struct needs one."""
    return pa.Table.from_arrays([column.combine_chunks() for column in rows.columns], schema=rows.schema)


def _full_name(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts)


def _translated(error: Exception) -> Exception:
    """Return the error of Spark as one of ours: errors of a query recur, errors of the engine may pass."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import errors

    if not isinstance(error, errors.PySparkException | Py4JError | OSError):
        return error
    lasting = (
        errors.AnalysisException, errors.ParseException, errors.ArithmeticException, errors.IllegalArgumentException,
        errors.NumberFormatException, errors.DateTimeException, errors.UnsupportedOperationException,
    )  # fmt: skip
    message = str(error).partition("\n\tat ")[0][:1000]
    return ExecutionError(f"Spark refused the query: {message}", retryable=not isinstance(error, lasting))
