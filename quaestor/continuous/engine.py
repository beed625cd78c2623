"""Engine of continuous queries: prepares a text, and executes the incremental query of a run. A seam of the room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from quaestor.tables.changes import Snapshot


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

    def rows(self, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> Any:
        """Return the results that entered in (after, upto], as an Arrow table. Rows of earlier runs may be among them.

        snapshots: of each table; rows of these snapshots after `upto` are not visible.

        Raises QueryError, SchemaError if a column is gone, DependencyError.
        """
        ...


class Engine(Protocol):
    """Compiler and executor."""

    def prepare(self, text: str) -> PreparedQuery:
        """Compile a text against the present columns of the tables. Raises QueryError, SchemaError, DependencyError."""
        ...
