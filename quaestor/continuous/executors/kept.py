"""Copies of versioned tables in DuckDB, which stay between runs: a run that needs rows of any age reads new files only.

Rows up to a closed instant never change, so a copy only grows. Rows that the table drops later stay until the process ends.
Columns that join tables get an index, so a few new rows find their partners without a pass over the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import duckdb
from sqlglot import exp

from quaestor.continuous.executors.stored import StoredRows
from quaestor.continuous.executors.zones import without_zones

DATABASE: Final = "kept"
_FRESH: Final = "kept_fresh"
_ROWS_AT_ONCE: Final = 500_000
_MOST_INDEXED: Final = 10_000_000
"""Rows of a table up to which its columns get an index, which takes about 100 bytes of memory for each row."""


class KeptTables:
    """Copies in a database of their own in memory, compressed.

    most_bytes: size of a table's files up to which a copy is kept.
    counts: number of rows of each copy, by its name.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, most_bytes: int) -> None:
        self._connection = connection
        self._most_bytes = most_bytes
        self.counts: dict[str, int] = {}
        self._kept: dict[str, _Kept] = {}
        connection.execute(f"ATTACH ':memory:' AS {DATABASE} (COMPRESS)")

    def fits(self, rows: Any) -> bool:
        """Whether a copy of the table is worth it: the run needs rows of any age, and they fit."""
        return isinstance(rows, StoredRows) and rows.after < 0 and rows.size_bytes <= self._most_bytes

    def name_of(self, rows: StoredRows, joined: set[str]) -> str:
        """Return the name of the copy, with all rows up to the wanted instant. Rows later than that may be there too.

        joined: columns that join the table with others.
        """
        place = rows.table.table.storage.location
        schema = rows.table.schema(rows.snapshot)
        kept = self._kept.get(place)
        if kept is None or not kept.serves({name: schema.type_of(name) for name in rows.columns}):
            names = [name for name in schema.names if name in rows.columns or (kept and name in kept.types)]
            number = len(self._kept) if kept is None else kept.number
            self._connection.execute(f"DROP TABLE IF EXISTS {DATABASE}.t{number}")
            kept = self._kept[place] = _Kept(number, {name: schema.type_of(name) for name in names})
        self._grow(kept, rows)
        self._index(kept, joined & set(rows.columns))
        self.counts[f"t{kept.number}"] = kept.rows
        return f"t{kept.number}"

    def _grow(self, kept: _Kept, rows: StoredRows) -> None:
        upto = min(rows.upto, rows.snapshot.instant)  # rows of later entries have later instants
        if kept.made and upto <= kept.upto:
            return
        for part in _parts(StoredRows(rows.table, rows.snapshot, (kept.upto, upto), tuple(kept.types))):
            self._connection.register(_FRESH, without_zones(part.arrow()))
            try:
                table = f"{DATABASE}.t{kept.number}"
                verb = f"INSERT INTO {table}" if kept.made else f"CREATE TABLE {table} AS"
                self._connection.execute(f"{verb} SELECT * FROM {_FRESH}")
            finally:
                self._connection.unregister(_FRESH)
            kept.made, kept.upto = True, part.upto
            kept.rows += part.read.rows
            rows.read = rows.read.plus(part.read)

    def _index(self, kept: _Kept, joined: set[str]) -> None:
        for name in sorted(joined - kept.indexed) if kept.rows <= _MOST_INDEXED else ():
            column = exp.to_identifier(name, quoted=True).sql("duckdb")
            index = f"i{kept.number}_{len(kept.indexed)}"
            self._connection.execute(f"CREATE INDEX {index} ON {DATABASE}.t{kept.number} ({column})")
            kept.indexed.add(name)


class _Kept:
    """Copy of a table.

    types: of its columns.
    upto: instant up to which the copy has all rows.
    """

    def __init__(self, number: int, types: dict[str, Any]) -> None:
        self.number = number
        self.types = types
        self.upto = -1
        self.rows = 0
        self.made = False
        self.indexed: set[str] = set()

    def serves(self, types: dict[str, Any]) -> bool:
        """Whether the copy has these columns, in these types."""
        return types.items() <= self.types.items()


def joined_columns(expression: exp.Query) -> set[str]:
    """Return the names of columns that equal a column of another table."""
    names = set()
    for equal in expression.find_all(exp.EQ):
        left, right = equal.this, equal.expression
        if isinstance(left, exp.Column) and isinstance(right, exp.Column) and left.table != right.table:
            names |= {left.name, right.name}
    return names


def _parts(rows: StoredRows) -> Iterator[StoredRows]:
    """Yield the rows in parts that fit into the memory: intervals that end with a file."""
    after, size = rows.after, 0
    for file in sorted(rows.files(), key=lambda data_file: data_file.last):
        size += file.rows
        if size >= _ROWS_AT_ONCE and after < file.last < rows.upto:
            yield StoredRows(rows.table, rows.snapshot, (after, file.last), rows.columns)
            after, size = file.last, 0
    yield StoredRows(rows.table, rows.snapshot, (after, rows.upto), rows.columns)
