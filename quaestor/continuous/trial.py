"""Trial of a compiled query: an engine resolves its functions and types against empty tables, before the query is installed."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

from quaestor.continuous.arrow_sql import check
from quaestor.continuous.compilation import CompiledQuery
from quaestor.continuous.executors.binding import bound
from quaestor.continuous.executors.zones import without_zones
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.files import TS_TYPE
from quaestor.tables.schema import TS, Schema
from quaestor.tables.versioned import ARROW


def refuse_what_cannot_run(compiled: CompiledQuery, schemas: Mapping[str, Schema]) -> None:
    """Raise QueryRefusedError for a query with a function or types that no engine accepts.

    schemas: of the query's tables, by name.
    """
    try:
        check(
            bound(compiled.standard, None, 0).sql("duckdb"), {name: _empty(schemas[name]) for name in compiled.tables}
        )
    except duckdb.Error as error:
        message = str(error).split("\n")[0]
        raise QueryRefusedError(
            1, 1, f"the engine refuses the query: {message}", "correct functions and types"
        ) from error


def _empty(schema: Schema) -> pa.Table:
    fields = [(column.name, ARROW[column.type]) for column in schema.columns]
    return without_zones(pa.schema([*fields, (TS, TS_TYPE)]).empty_table())
