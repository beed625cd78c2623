"""SQL over Arrow tables in memory: one database of the process, a cursor for each use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import duckdb


def selected(query: str, tables: Mapping[str, Any]) -> Any:
    """Return the result of a SELECT over Arrow tables, by name. Use from any thread. Timestamps are in UTC."""
    with _cursor(tables) as cursor:
        return cursor.sql(query).to_arrow_table()


def check(query: str, tables: Mapping[str, Any]) -> None:
    """Resolve the names and types of a SELECT over Arrow tables, without executing it. Raises duckdb.Error."""
    with _cursor(tables) as cursor:
        cursor.sql(query)


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _cursor(tables: Mapping[str, Any]) -> Iterator[duckdb.DuckDBPyConnection]:
    with _database().cursor() as cursor:
        cursor.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            cursor.register(name, table)
        yield cursor


@cache
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"enable_external_access": "false"})
