"""Descriptions of filled tables: which collection of MongoDB becomes which table, with which columns.

The form is `orders=shop.orders(_id:text price:double)`. The name of the table and the columns may be left out. The
table then has the name of the collection, and its columns are inferred.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quaestor.errors import ConfigurationError
from quaestor.tables.schema import Column, Schema, Type

_TABLE: Final = re.compile(
    r"(?:(?P<table>[A-Za-z_][A-Za-z0-9_]*)=)?(?P<database>[^.()=\s]+)\.(?P<collection>[^()=\s]+)(?:\((?P<columns>[^()]*)\))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledTable:
    """Table that a collection fills.

    declared: columns; None: they are inferred from the records.
    """

    name: str
    database: str
    collection: str
    declared: Schema | None = None


def filled_table(text: str) -> FilledTable:
    """Return the description in a text. Raises ConfigurationError."""
    match = _TABLE.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(
            f"{text!r} describes no filled table: write shop.orders, or orders=shop.orders(_id:text price:double)"
        )
    columns = match["columns"]
    return FilledTable(
        name=match["table"] or match["collection"].replace(".", "_"),
        database=match["database"],
        collection=match["collection"],
        declared=None if columns is None else declared_schema(columns.split()),
    )


def filled_tables(texts: Sequence[str]) -> tuple[FilledTable, ...]:
    """Return the descriptions in texts. Raises ConfigurationError, also for two tables of one name."""
    tables = tuple(map(filled_table, texts))
    names = [table.name.lower() for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two collections fill the table {name!r}: write another name before one, as in name=shop.orders"
            )
    return tables


def declared_schema(columns: Sequence[str]) -> Schema:
    """Return the schema of columns in the form `price:double`. Raises ConfigurationError."""
    return Schema(tuple(map(_column, columns)))


def _column(text: str) -> Column:
    name, _, kind = text.rpartition(":")
    if not name or kind not in list(Type):
        raise ConfigurationError(f"{text!r} is no column: write NAME:TYPE, with a type of {', '.join(Type)}")
    return Column(name, Type(kind))
