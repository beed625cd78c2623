"""Schema of a versioned table: typed columns that may be added and widened, never dropped or retyped.

DuckDB, Spark and Arrow share the types. A value of any other type is kept as text in JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quaestor.errors import ConfigurationError

TS: Final = "ts"
"""Column of every table: the instant of a row's publication."""
STEP: Final = "_step"
"""Form of that instant in files whose entry has several."""
RESERVED: Final = frozenset({TS, STEP})


class Type(StrEnum):
    """Type of a column.

    DECIMAL: 38 digits, 12 of them behind the point.
    TIMESTAMP: microseconds, UTC.
    JSON: text in MongoDB's extended JSON (relaxed).
    POINT: x and y, each a double; on the sphere x is the longitude in degrees, y the latitude.
    """

    BIGINT = "bigint"
    DOUBLE = "double"
    DECIMAL = "decimal"
    TEXT = "text"
    BOOL = "bool"
    TIMESTAMP = "timestamp"
    BYTES = "bytes"
    JSON = "json"
    POINT = "point"


WIDER: Final = frozenset({(Type.BIGINT, Type.DOUBLE), (Type.BIGINT, Type.DECIMAL)})
"""Pairs (narrow, wide). A widened column keeps its values; double rounds integers beyond 2^53."""


class SchemaError(ConfigurationError):
    """Error of a schema: a column was dropped or retyped, or has a name that is not allowed.

    column: its name.
    """

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table. Every column may hold NULL."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns of a table, in order. Names differ in more than upper and lower case, as SQL wants it.

    key: columns that identify a record, for tables of versions; empty: each row is a record.

    Raises SchemaError.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for column in self.columns:
            if not column.name or column.name.lower() in RESERVED:
                raise SchemaError(f"a column must not be named {column.name!r}: rename it", column.name)
            if column.name.lower() in seen:
                raise SchemaError(f"two columns are named {column.name!r} (SQL ignores case): rename one", column.name)
            seen.add(column.name.lower())
        for name in self.key:
            if name not in self.names:
                raise SchemaError(f"the key names {name!r}, which is no column: add the column", name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def type_of(self, name: str) -> Type | None:
        """Type of a column; None: there is no such column."""
        return next((column.type for column in self.columns if column.name == name), None)

    def evolved(self, newer: Schema, *, whole: bool) -> Schema:
        """Return this schema with the additions and wider types of a newer one.

        whole: whether the newer schema has to name every column of this one.

        Raises SchemaError for a dropped or retyped column, and for another key.
        """
        if newer.key != self.key:
            raise SchemaError(
                f"the key was {self.key}, and would be {newer.key}: make a new table", ", ".join(newer.key or self.key)
            )
        columns = []
        for column in self.columns:
            wanted = newer.type_of(column.name)
            if wanted is None and whole:
                raise SchemaError(
                    f"column {column.name!r} was dropped: declare it again, or make a new table", column.name
                )
            columns.append(Column(column.name, column.type if wanted is None else _wider(column, wanted)))
        columns += [column for column in newer.columns if self.type_of(column.name) is None]
        return Schema(tuple(columns), self.key)

    def encode(self) -> str:
        """Return the schema as JSON."""
        return json.dumps({"columns": [[column.name, column.type] for column in self.columns], "key": list(self.key)})


def decode(text: str) -> Schema:
    """Return a schema from its JSON."""
    fields = json.loads(text)
    return Schema(tuple(Column(name, Type(kind)) for name, kind in fields["columns"]), tuple(fields["key"]))


def _wider(column: Column, wanted: Type) -> Type:
    if wanted == column.type or (wanted, column.type) in WIDER:
        return column.type
    if (column.type, wanted) in WIDER:
        return wanted
    raise SchemaError(
        f"column {column.name!r} was {column.type.value}, and would be {wanted.value}: give the new column another name",
        column.name,
    )
