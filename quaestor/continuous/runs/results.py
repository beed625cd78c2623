"""Result tables: rows of runs in the types of tables, without the rows that earlier runs have published."""

from __future__ import annotations

from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.types as pt

from quaestor.continuous.delivery.batch import to_json
from quaestor.continuous.installed import ROW, RUN
from quaestor.tables.schema import TS, Column, Schema, SchemaError, Type
from quaestor.tables.versioned import ARROW

_KINDS: Final = (
    (pt.is_boolean, Type.BOOL), (pt.is_integer, Type.BIGINT), (pt.is_floating, Type.DOUBLE), (pt.is_decimal, Type.DECIMAL),
    (pt.is_timestamp, Type.TIMESTAMP), (pt.is_date, Type.TIMESTAMP), (pt.is_string, Type.TEXT), (pt.is_large_string, Type.TEXT),
    (pt.is_string_view, Type.TEXT), (pt.is_binary, Type.BYTES), (pt.is_large_binary, Type.BYTES), (pt.is_null, Type.TEXT),
)  # fmt: skip


def fitted(rows: Any) -> Any:
    """Return an Arrow table in the types of tables: dates become timestamps, nested values become JSON.

    Raises SchemaError for a column that result tables need for themselves.
    """
    names, arrays = [], []
    for name in rows.schema.names:
        if name in (RUN, ROW, TS):
            raise SchemaError(f"a result must not have a column {name!r}: give it another name (AS ...)", name)
        column, kind = rows.column(name), _kind(rows.schema.field(name).type)
        if kind is Type.JSON:
            column = pa.chunked_array(
                [[None if value is None else to_json(value) for value in column.to_pylist()]], pa.string()
            )
        names.append(name)
        arrays.append(column.cast(ARROW[kind]))
    return pa.table(arrays, names=names)


def schema_of(rows: Any) -> Schema:
    """Return the columns of a result table for these rows."""
    own = (Column(RUN, Type.BIGINT), Column(ROW, Type.BIGINT))
    return Schema((*own, *(Column(field.name, _kind(field.type)) for field in rows.schema)))


def without(rows: Any, known: Any) -> Any:
    """Return the different rows that are not among the known ones. NULL equals NULL. In the order of their values."""
    connection = duckdb.connect()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("fresh_rows", rows)
        connection.register("known_rows", known)
        columns = ", ".join('"' + name.replace('"', '""') + '"' for name in rows.schema.names)
        fresh = connection.sql(f"SELECT {columns} FROM fresh_rows EXCEPT SELECT {columns} FROM known_rows ORDER BY ALL")
        return fresh.to_arrow_table().cast(rows.schema)
    finally:
        connection.close()


def numbered(rows: Any, run: int) -> Any:
    """Return the rows with the run's instant and their numbers."""
    numbers = pa.array(range(rows.num_rows), pa.int64())
    return rows.append_column(RUN, pa.repeat(pa.scalar(run, pa.int64()), rows.num_rows)).append_column(ROW, numbers)


def _kind(arrow: Any) -> Type:
    return next((kind for fits, kind in _KINDS if fits(arrow)), Type.JSON)
