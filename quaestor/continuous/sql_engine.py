"""Engine of SQL: texts are compiled, and executed on versioned tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, reduce
from typing import Any

from sqlglot import exp

from quaestor.continuous.compilation import CompiledQuery, compile_query
from quaestor.continuous.engine import NOTHING, Evaluated, Read
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.executors.stored import StoredRows
from quaestor.continuous.reach import Reach, columns_read, reaches
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot


class SqlQuery:
    """Compiled query on the tables of a catalogue. Implements PreparedQuery.

    compiled: its texts and its meaning over time.
    """

    def __init__(self, compiled: CompiledQuery, catalogue: Catalogue, executor: Executor) -> None:
        self.compiled = compiled
        self._catalogue = catalogue
        self._executor = executor

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that the query reads."""
        return self.compiled.tables

    @cached_property
    def shape(self) -> str:
        """Incremental query without its constants."""
        bare = self.compiled.incremental.transform(
            lambda node: exp.Placeholder() if isinstance(node, exp.Literal) else node
        )
        return bare.sql("duckdb")

    @property
    def may_repeat(self) -> bool:
        """Whether rows of earlier runs may be among the rows of a run."""
        return self.compiled.may_repeat

    @cached_property
    def reaches(self) -> dict[str, Reach]:
        """Rows of each table that a run reads."""
        return reaches(self.compiled.incremental)

    def rows(self, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> Evaluated:
        """Return the results that entered in (after, upto]. See PreparedQuery."""
        return self._executed(self.compiled.incremental, after, upto, snapshots)

    def entries(self, upto: int, snapshots: Mapping[str, Snapshot]) -> Any:
        """Return everything that the query returns up to an instant, each with its first instant in `_instant`."""
        return self._executed(self.compiled.entries, 0, upto, snapshots).rows

    def _executed(self, expression: exp.Query, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> Evaluated:
        tables = {}
        reached = self.reaches if expression is self.compiled.incremental else {}
        for name in self.tables:
            table, snapshot = self._catalogue.open(name), snapshots[name]
            columns = tuple(columns_read(expression, table.schema(snapshot)))
            interval = reached.get(name, Reach()).interval(after, upto) if after else (-1, upto)
            tables[name] = StoredRows(table, snapshot, interval, columns)
        rows = self._executor.rows(expression, after or None, upto, tables)
        return Evaluated(rows, reduce(Read.plus, (stored.read for stored in tables.values()), NOTHING))


class SqlEngine:
    """Compiler and executor. Implements Engine."""

    def __init__(self, catalogue: Catalogue, executor: Executor) -> None:
        self._catalogue = catalogue
        self._executor = executor

    def prepare(self, text: str) -> SqlQuery:
        """Compile a text against the present columns of the tables. Raises QueryRefusedError, DependencyError."""
        return SqlQuery(compile_query(text, self._catalogue.schemas()), self._catalogue, self._executor)
