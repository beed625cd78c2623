"""DuckDB in this process as executor."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Self

import duckdb
import pyarrow as pa
from sqlglot import exp

from quaestor.continuous.executors.binding import bound
from quaestor.continuous.executors.executor import ExecutionError, Executor
from quaestor.continuous.executors.kept import DATABASE, KeptTables, joined_columns
from quaestor.continuous.executors.reduction import MOST_KEYS, Reduction
from quaestor.continuous.executors.stored import StoredRows
from quaestor.continuous.executors.time_limit import time_limit
from quaestor.continuous.executors.zones import with_zones, without_zones

KEPT_BYTES: Final = 4_000_000_000
"""Size of a table's files up to which the engine keeps a copy between runs."""
_HUGEINT: Final = pa.decimal128(38, 0)
LIMIT_S: Final = 3_600.0
"""Longest time of a query."""


class DuckDbExecutor(Executor):
    """Executor on an in-memory database of its own. Calls from several threads run at the same time.

    memory_limit: as DuckDB writes it, such as `1GB`; None: the engine's default.
    threads: most threads of a query; None: the engine's default.
    kept_bytes: size of a table's files up to which a copy stays in memory between runs that need rows of any age.
    limit_s: longest time of a query; then it is interrupted, and fails.

    Timestamps of results are in UTC.
    """

    def __init__(
        self,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        kept_bytes: int = KEPT_BYTES,
        limit_s: float = LIMIT_S,
    ) -> None:
        settings: dict[str, str | int] = {"TimeZone": "UTC", "dynamic_or_filter_threshold": MOST_KEYS}
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        if threads is not None:
            settings["threads"] = threads
        self._connection = duckdb.connect(":memory:")
        for name, value in settings.items():
            self._connection.execute(f"SET GLOBAL {name} = '{value}'")  # for the cursors too
        self._kept = KeptTables(self._connection, kept_bytes)
        # A query reads the rows that it is given: no files, no network, and no other settings.
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self._limit_s = limit_s

    def rows(
        self, expression: exp.Query, tau: int | None, t: int, snapshots: Mapping[str, pa.Table | StoredRows]
    ) -> pa.Table:
        """Return the rows of an expression. See `Executor.rows`."""
        query = bound(expression, tau, t)
        joined = joined_columns(query)
        registered: set[str] = set()
        used: list[str] = []
        with self._connection.cursor() as cursor:
            reduction = Reduction(cursor, self._kept.counts)
            try:
                with time_limit(cursor, self._limit_s):
                    for table in list(query.find_all(exp.Table)):
                        rows = snapshots[table.name]
                        if tau is not None and self._kept.fits(rows):
                            used.append(self._kept.use(cursor, rows, joined))
                            table.replace(
                                exp.alias_(exp.table_(used[-1], db=DATABASE), table.alias_or_name, table=True)
                            )
                        elif table.name not in registered:
                            whole = rows.arrow() if isinstance(rows, StoredRows) else rows
                            cursor.register(table.name, without_zones(whole))
                            registered.add(table.name)
                    reduction.apply(query)
                    return _without_hugeints(with_zones(cursor.sql(query.sql("duckdb")).to_arrow_table()))
            except duckdb.InterruptException as error:
                raise ExecutionError(
                    f"the query took longer than {self._limit_s:g} s: simplify it, or raise continuous_limit_s",
                    retryable=False,
                ) from error
            except duckdb.Error as error:
                raise ExecutionError(f"DuckDB refused the query: {error}", retryable=False) from error
            finally:
                reduction.drop()
                self._kept.release(cursor, used)

    def close(self) -> None:
        """Free the memory of the engine."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _without_hugeints(rows: pa.Table) -> pa.Table:
    """Return rows whose sums of whole numbers are BIGINT, as on other engines. A column that has a larger sum stays."""
    for place, field in enumerate(rows.schema):
        if field.type == _HUGEINT:
            with suppress(pa.ArrowInvalid):
                rows = rows.set_column(place, field.name, rows.column(place).cast(pa.int64()))
    return rows
