"""DuckDB in this process as executor."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Self

import duckdb
import pyarrow as pa
from sqlglot import exp

from quaestor.continuous.executors.binding import bound
from quaestor.continuous.executors.executor import ExecutionError, Executor
from quaestor.continuous.executors.stored import StoredRows


class DuckDbExecutor(Executor):
    """Executor on an in-memory database of its own. Calls from several threads take turns.

    memory_limit: as DuckDB writes it, such as `1GB`; None: the engine's default.
    threads: most threads of a query; None: the engine's default.

    Timestamps of results are in UTC.
    """

    def __init__(self, *, memory_limit: str | None = None, threads: int | None = None) -> None:
        settings: dict[str, str | int] = {"TimeZone": "UTC"}
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        if threads is not None:
            settings["threads"] = threads
        self._connection = duckdb.connect(":memory:")
        for name, value in settings.items():
            self._connection.execute(f"SET {name} = '{value}'")
        self._lock = Lock()

    def rows(
        self, expression: exp.Query, tau: int | None, t: int, snapshots: Mapping[str, pa.Table | StoredRows]
    ) -> pa.Table:
        """Return the rows of an expression. See `Executor.rows`."""
        query = bound(expression, tau, t)
        names = {node.name for node in query.find_all(exp.Table)}
        with self._lock:
            try:
                for name in names:
                    rows = snapshots[name]
                    whole = rows.arrow() if isinstance(rows, StoredRows) else rows
                    self._connection.register(name, without_zones(whole))
                return with_zones(self._connection.sql(query.sql("duckdb")).to_arrow_table())
            except duckdb.Error as error:
                raise ExecutionError(f"DuckDB refused the query: {error}", retryable=False) from error
            finally:
                for name in names:
                    self._connection.unregister(name)

    def close(self) -> None:
        """Free the memory of the engine."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def without_zones(table: pa.Table) -> pa.Table:
    """Return a table whose timestamps have no zone; all are UTC, so no value changes."""
    return _cast_timestamps(table, None)


def with_zones(table: pa.Table) -> pa.Table:
    """Return a table whose timestamps are in UTC."""
    return _cast_timestamps(table, "UTC")


def _cast_timestamps(table: pa.Table, zone: str | None) -> pa.Table:
    wanted: Any = pa.schema(
        [
            pa.field(field.name, pa.timestamp("us", tz=zone)) if pa.types.is_timestamp(field.type) else field
            for field in table.schema
        ]
    )
    return table.cast(wanted)
