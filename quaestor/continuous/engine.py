"""Engine of continuous queries: prepares a text, and executes the incremental query of a run. A seam of the room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from quaestor.tables.changes import Snapshot


class Read(NamedTuple):
    """Amount that a run has read.

    bytes: of the read columns, in memory; of the files, where an engine reads them itself.
    """

    files: int = 0
    rows: int = 0
    bytes: int = 0

    def plus(self, other: Read) -> Read:
        """Return both amounts together."""
        return Read(self.files + other.files, self.rows + other.rows, self.bytes + other.bytes)


NOTHING: Final = Read()


class Evaluated(NamedTuple):
    """Rows of an evaluation, and the amount that it read.

    rows: an Arrow table.
    """

    rows: Any
    read: Read


class PreparedQuery(Protocol):
    """Query that can be executed."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that the query reads."""
        ...

    @property
    def shape(self) -> str:
        """Signature: queries of the same shape differ in constants only."""
        ...

    @property
    def may_repeat(self) -> bool:
        """Whether rows of earlier runs may be among the rows of a run."""
        ...

    def rows(self, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> Evaluated:
        """Return the results that entered in (after, upto].

        snapshots: of each table; rows of these snapshots after `upto` are not visible.

        Raises QueryError, SchemaError if a column is gone, DependencyError.
        """
        ...


class Engine(Protocol):
    """Compiler and executor."""

    def prepare(self, text: str) -> PreparedQuery:
        """Compile a text against the present columns of the tables. Raises QueryError, SchemaError, DependencyError."""
        ...
