"""Copies of versioned tables in DuckDB, which stay between runs: a run that needs rows of any age reads new files only.

Rows up to a closed instant never change, so a copy only grows. Rows that the table drops later stay until the process ends.
Columns that join tables get an index, so a few new rows find their partners without a pass over the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from threading import Lock
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
    """Copies in a database of their own in memory, compressed. Thread-safe; each thread brings a cursor of its own.

    most_bytes: size of a table's files up to which a copy is kept.
    counts: number of rows of each copy, by its name.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.counts: dict[str, int] = {}
        self._kept: dict[str, _Kept] = {}
        self._used: dict[str, _Kept] = {}
        self._numbers = count()
        self._lock = Lock()
        connection.execute(f"ATTACH ':memory:' AS {DATABASE} (COMPRESS)")

    def fits(self, rows: Any) -> bool:
        """Whether a copy of the table is worth it: the run needs rows of any age, and they fit."""
        return isinstance(rows, StoredRows) and rows.after < 0 and rows.size_bytes <= self._most_bytes

    def use(self, cursor: duckdb.DuckDBPyConnection, rows: StoredRows, joined: set[str]) -> str:
        """Return the name of the copy, with all rows up to the wanted instant. Rows later than that may be there too.

        The copy stays until `release`. Waits while another thread adds rows to the same copy.

        joined: columns that join the table with others.
        """
        kept = self._copy(cursor, rows)
        try:
            with kept.lock:
                self._grow(cursor, kept, rows)
                self._index(cursor, kept, joined & set(rows.columns))
                self.counts[kept.name] = kept.rows
        except BaseException:
            self.release(cursor, [kept.name])
            raise
        return kept.name

    def release(self, cursor: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
        """End the use of copies, one for each call of `use`."""
        with self._lock:
            for name in names:
                kept = self._used[name]
                kept.users -= 1
                self._drop_unused(cursor, kept)

    def _copy(self, cursor: duckdb.DuckDBPyConnection, rows: StoredRows) -> _Kept:
        """Return the copy with the columns of some rows, in use. A copy with other columns ends with its last use."""
        place = rows.table.table.storage.location
        schema = rows.table.schema(rows.snapshot)
        with self._lock:
            kept = self._kept.get(place)
            if kept is None or not kept.serves({name: schema.type_of(name) for name in rows.columns}):
                names = [name for name in schema.names if name in rows.columns or (kept and name in kept.types)]
                if kept is not None:
                    kept.is_current = False
                    self._drop_unused(cursor, kept)
                kept = _Kept(f"t{next(self._numbers)}", {name: schema.type_of(name) for name in names})
                self._kept[place] = self._used[kept.name] = kept
            kept.users += 1
            return kept

    def _drop_unused(self, cursor: duckdb.DuckDBPyConnection, kept: _Kept) -> None:
        if kept.users == 0 and not kept.is_current:
            cursor.execute(f"DROP TABLE IF EXISTS {DATABASE}.{kept.name}")
            del self._used[kept.name]
            self.counts.pop(kept.name, None)

    def _grow(self, cursor: duckdb.DuckDBPyConnection, kept: _Kept, rows: StoredRows) -> None:
        upto = min(rows.upto, rows.snapshot.instant)  # rows of later entries have later instants
        if kept.made and upto <= kept.upto:
            return
        for part in _parts(StoredRows(rows.table, rows.snapshot, (kept.upto, upto), tuple(kept.types))):
            cursor.register(_FRESH, without_zones(part.arrow()))
            try:
                table = f"{DATABASE}.{kept.name}"
                verb = f"INSERT INTO {table}" if kept.made else f"CREATE TABLE {table} AS"
                cursor.execute(f"{verb} SELECT * FROM {_FRESH}")
            finally:
                cursor.unregister(_FRESH)
            kept.made, kept.upto = True, part.upto
            kept.rows += part.read.rows
            rows.read = rows.read.plus(part.read)

    def _index(self, cursor: duckdb.DuckDBPyConnection, kept: _Kept, joined: set[str]) -> None:
        for name in sorted(joined - kept.indexed) if kept.rows <= _MOST_INDEXED else ():
            column = exp.to_identifier(name, quoted=True).sql("duckdb")
            index = f"{kept.name}_{len(kept.indexed)}"
            cursor.execute(f"CREATE INDEX {index} ON {DATABASE}.{kept.name} ({column})")
            kept.indexed.add(name)


class _Kept:
    """Copy of a table.

    types: of its columns.
    upto: instant up to which the copy has all rows.
    lock: held while rows are added.
    users: queries that read the copy.
    is_current: whether further queries may use it.
    """

    def __init__(self, name: str, types: dict[str, Any]) -> None:
        self.name = name
        self.lock = Lock()
        self.users = 0
        self.is_current = True
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
