"""Rows of a versioned table for an executor, which reads the files itself where it can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from quaestor.continuous.engine import NOTHING, Read
from quaestor.continuous.reach import Reach, columns_read, reaches
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import DataFile, Snapshot
from quaestor.tables.versioned import VersionedTable


class StoredRows:
    """Rows of a snapshot in an interval of instants.

    interval: (after, upto] in microseconds.
    columns: names of the columns that a query uses; `ts` is always there.
    read: amount that an executor has read.
    """

    def __init__(
        self, table: VersionedTable, snapshot: Snapshot, interval: tuple[int, int], columns: Sequence[str]
    ) -> None:
        self.table = table
        self.snapshot = snapshot
        self.after, self.upto = interval
        self.columns = tuple(columns)
        self.read = NOTHING

    @property
    def size_bytes(self) -> int:
        """Size of the files that may hold rows."""
        return sum(file.bytes for file in self.files())

    def files(self, after: int | None = None, upto: int | None = None) -> list[DataFile]:
        """Return the files that may hold rows in an interval (after, upto]; None: no further bound."""
        return self.table.files(self.snapshot, *self.within(after, upto))

    def within(self, after: int | None, upto: int | None) -> tuple[int, int]:
        """Return the part of these rows' interval that lies in another one."""
        return max(self.after, self.after if after is None else after), min(
            self.upto, self.upto if upto is None else upto
        )

    def arrow(self) -> Any:
        """Return the rows as an Arrow table. Raises SchemaError, DependencyError."""
        rows = self.table.scan(self.snapshot, self.after, self.upto, self.columns)
        self.read = self.read.plus(Read(len(self.files()), rows.num_rows, rows.nbytes))
        return rows

    def read_files(self, files: Sequence[DataFile]) -> None:
        """Note that an engine reads files itself."""
        self.read = self.read.plus(
            Read(len(files), sum(file.rows for file in files), sum(file.bytes for file in files))
        )


def stored(
    expression: exp.Query,
    catalogue: Catalogue,
    names: Iterable[str],
    after: int,
    upto: int,
    snapshots: Mapping[str, Snapshot],
    reached: Mapping[str, Reach] | None = None,
) -> dict[str, StoredRows]:
    """Return the rows of each table that an expression over (after, upto] needs, by name.

    after: 0: no run yet, so rows of any age.
    reached: reach of each table; None: it is read from the expression.
    """
    reach_of = reaches(expression) if reached is None else reached
    tables = {}
    for name in names:
        table, snapshot = catalogue.open(name), snapshots[name]
        interval = reach_of.get(name, Reach()).interval(after, upto) if after else (-1, upto)
        tables[name] = StoredRows(table, snapshot, interval, columns_read(expression, table.schema(snapshot)))
    return tables
