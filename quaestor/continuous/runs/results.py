"""Result tables: rows of runs in the types of tables, without the rows that earlier runs have published."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from quaestor.continuous.arrow_sql import quoted, selected
from quaestor.continuous.delivery.batch import to_json
from quaestor.continuous.installed import HASH, OWN, RESULTS, ROW, RUN
from quaestor.errors import ConfigurationError, QuaestorError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.retention import maintained
from quaestor.tables.schema import TS, Column, Schema, SchemaError, Type
from quaestor.tables.versioned import ARROW, VersionedTable

_KINDS: Final = (
    (pt.is_boolean, Type.BOOL), (pt.is_integer, Type.BIGINT), (pt.is_floating, Type.DOUBLE), (pt.is_decimal, Type.DECIMAL),
    (pt.is_timestamp, Type.TIMESTAMP), (pt.is_date, Type.TIMESTAMP), (pt.is_string, Type.TEXT), (pt.is_large_string, Type.TEXT),
    (pt.is_string_view, Type.TEXT), (pt.is_binary, Type.BYTES), (pt.is_large_binary, Type.BYTES), (pt.is_null, Type.TEXT),
)  # fmt: skip
MANY_FILES: Final = 50
"""Files of a result table from which they are joined: each run with results adds a file."""


def fitted(rows: Any) -> Any:
    """Return an Arrow table in the types of tables: dates become timestamps, nested values become JSON.

    Raises SchemaError for a column that result tables need for themselves.
    """
    names, arrays = [], []
    for name in rows.schema.names:
        if name in OWN:
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
    return Schema((*RESULTS.columns, *(Column(field.name, _kind(field.type)) for field in rows.schema)))


def different(rows: Any) -> Any:
    """Return each of the different rows once, in the order of their values. NULL equals NULL."""
    return selected("SELECT DISTINCT * FROM fresh_rows ORDER BY ALL", {"fresh_rows": rows}).cast(rows.schema)


def without(rows: Any, known: Any) -> Any:
    """Return the different rows that are not among the known ones. NULL equals NULL. In the order of their values."""
    columns = ", ".join(map(quoted, rows.schema.names))
    text = f"SELECT {columns} FROM fresh_rows EXCEPT SELECT {columns} FROM known_rows ORDER BY ALL"
    return selected(text, {"fresh_rows": rows, "known_rows": known}).cast(rows.schema)


def hashed(rows: Any) -> Any:
    """Return the rows with a hash of their values. Equal rows always have equal hashes, also after a column was widened.

    NULL has no part in the hash, so a column that is added later changes no hash.
    """
    parts = ", ".join(map(_text, rows.schema))
    text = f"SELECT *, md5_number_lower(concat_ws('\\n', {parts})) AS {HASH} FROM fresh_rows"
    result = selected(text, {"fresh_rows": rows})
    number = result.column(HASH).cast(pa.uint64()).combine_chunks()
    return rows.append_column(
        HASH, pa.Array.from_buffers(pa.int64(), len(number), number.buffers(), offset=number.offset)
    )


def numbered(rows: Any, run: int) -> Any:
    """Return the rows with the run's instant and their numbers."""
    numbers = pa.array(range(rows.num_rows), pa.int64())
    return rows.append_column(RUN, pa.repeat(pa.scalar(run, pa.int64()), rows.num_rows)).append_column(ROW, numbers)


def matching(remembered: Any, hashes: Any) -> list[int]:
    """Return the instants of the remembered rows with any of these hashes, or without a hash, sorted.

    remembered: an Arrow table of HASH and `ts`.
    hashes: an Arrow table with HASH.
    """
    text = (
        f"SELECT DISTINCT epoch_us({TS}) AS instant FROM remembered"
        f" WHERE {HASH} IS NULL OR {HASH} IN (SELECT {HASH} FROM hashes) ORDER BY instant"
    )
    rows = selected(text, {"remembered": remembered, "hashes": hashes.select([HASH])})
    return list(rows.column("instant").to_pylist())


def maintain_results(catalogue: Catalogue, name: str, now_ms: int) -> int:
    """Join the small files of a result table, if there are many; return the number of joined files. Raises DependencyError.

    No row is dropped: a page of a run stays for ever. A table that is dropped before or meanwhile is no failure.
    """
    table = _table(catalogue, name)
    if table is None:
        return 0
    try:
        if len(table.snapshot().files) < MANY_FILES:
            return 0
        return maintained(table, keep_days=0, now_ms=now_ms).compacted
    except (QuaestorError, OSError, ValueError):
        if _table(catalogue, name) is table:
            raise
        return 0


def _table(catalogue: Catalogue, name: str) -> VersionedTable | None:
    """Return the table that has a name now; None: there is none."""
    try:
        return catalogue.open(name)
    except ConfigurationError:
        return None


def _text(field: Any) -> str:
    """Return SQL for the text of a column's values: numbers of all types as doubles, which widening keeps."""
    name, kind = quoted(field.name), _kind(field.type)
    if kind in (Type.BIGINT, Type.DOUBLE, Type.DECIMAL):
        return f"CAST(CAST({name} AS DOUBLE) + 0.0 AS VARCHAR)"
    if kind is Type.TIMESTAMP:
        return f"CAST(epoch_us({name}) AS VARCHAR)"
    return f"hex({name})" if kind is Type.BYTES else f"CAST({name} AS VARCHAR)"


def _kind(arrow: Any) -> Type:
    return next((kind for fits, kind in _KINDS if fits(arrow)), Type.JSON)
