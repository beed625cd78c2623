"""Engine of continuous queries: prepares a text, and executes the incremental query of a run. A seam of the room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from quaestor.errors import DependencyError, QuaestorError
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


class OutdatedCompilationError(DependencyError):
    """Error of a query that was compiled against other columns than a table has now. A new compilation mends it."""


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
    def repeats_within(self) -> int | None:
        """Microseconds after its result within which a row may be among the rows of a run again; None: without end."""
        ...

    def rows(self, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> Evaluated:
        """Return the results that entered in (after, upto].

        snapshots: of each table; rows of these snapshots after `upto` are not visible.

        Raises QueryError, SchemaError if a column is gone, OutdatedCompilationError if columns are new or wider, DependencyError.
        """
        ...


class Engine(Protocol):
    """Compiler and executor."""

    def prepare(self, text: str) -> PreparedQuery:
        """Compile a text against the present columns of the tables. Raises QueryError, SchemaError, DependencyError."""
        ...


class EvaluatedTogether(NamedTuple):
    """Rows of each query of a shared plan, by name, and the amount that the plan read."""

    rows: Mapping[str, Any]
    read: Read


class SharedQuery(Protocol):
    """Queries of equal shape as one plan."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that the queries read."""
        ...

    def rows(self, afters: Mapping[str, int], upto: int, snapshots: Mapping[str, Snapshot]) -> EvaluatedTogether:
        """Return the results of each query that entered in (its instant, upto]. Raises as `PreparedQuery.rows` does.

        afters: by name, for the queries that take part.
        """
        ...


@runtime_checkable
class SharingEngine(Protocol):
    """Engine that executes queries of equal shape as one plan. An ability besides Engine."""

    def prepare_all(self, texts: Sequence[str]) -> Sequence[PreparedQuery | QuaestorError]:
        """Compile texts, in order; the place of a text that is refused has its error. Raises DependencyError."""
        ...

    def together(self, queries: Mapping[str, PreparedQuery]) -> SharedQuery:
        """Return the plan of queries of equal shape, by name."""
        ...
