"""DuckDB in this process as executor."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final, Self

import duckdb
import pyarrow as pa
from sqlglot import exp

from quaestor.continuous.executors.binding import bound
from quaestor.continuous.executors.executor import ExecutionError, Executor
from quaestor.continuous.executors.kept import DATABASE, KeptTables, joined_columns
from quaestor.continuous.executors.reduction import MOST_KEYS, Reduction
from quaestor.continuous.executors.stored import StoredRows
from quaestor.continuous.executors.zones import with_zones, without_zones

KEPT_BYTES: Final = 4_000_000_000
"""Size of a table's files up to which the engine keeps a copy between runs."""


class DuckDbExecutor(Executor):
    """Executor on an in-memory database of its own. Calls from several threads take turns.

    memory_limit: as DuckDB writes it, such as `1GB`; None: the engine's default.
    threads: most threads of a query; None: the engine's default.
    kept_bytes: size of a table's files up to which a copy stays in memory between runs that need rows of any age.

    Timestamps of results are in UTC.
    """

    def __init__(
        self, *, memory_limit: str | None = None, threads: int | None = None, kept_bytes: int = KEPT_BYTES
    ) -> None:
        settings: dict[str, str | int] = {"TimeZone": "UTC", "dynamic_or_filter_threshold": MOST_KEYS}
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        if threads is not None:
            settings["threads"] = threads
        self._connection = duckdb.connect(":memory:")
        for name, value in settings.items():
            self._connection.execute(f"SET {name} = '{value}'")
        self._kept = KeptTables(self._connection, kept_bytes)
        # A query reads the rows that it is given: no files, no network, and no other settings.
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self._lock = Lock()

    def rows(
        self, expression: exp.Query, tau: int | None, t: int, snapshots: Mapping[str, pa.Table | StoredRows]
    ) -> pa.Table:
        """Return the rows of an expression. See `Executor.rows`."""
        query = bound(expression, tau, t)
        joined = joined_columns(query)
        with self._lock:
            registered: list[str] = []
            reduction = Reduction(self._connection, self._kept.counts)
            try:
                for table in list(query.find_all(exp.Table)):
                    rows = snapshots[table.name]
                    if tau is not None and self._kept.fits(rows):
                        name = self._kept.name_of(rows, joined)
                        table.replace(exp.alias_(exp.table_(name, db=DATABASE), table.alias_or_name, table=True))
                    elif table.name not in registered:
                        whole = rows.arrow() if isinstance(rows, StoredRows) else rows
                        self._connection.register(table.name, without_zones(whole))
                        registered.append(table.name)
                reduction.apply(query)
                return with_zones(self._connection.sql(query.sql("duckdb")).to_arrow_table())
            except duckdb.Error as error:
                raise ExecutionError(f"DuckDB refused the query: {error}", retryable=False) from error
            finally:
                reduction.drop()
                for name in registered:
                    self._connection.unregister(name)

    def close(self) -> None:
        """Free the memory of the engine."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
