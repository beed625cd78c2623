"""Engine of SQL: texts are compiled, and executed on versioned tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, reduce
from typing import Any

import sqlglot
from sqlglot import exp

from quaestor.continuous.compilation import CompiledQuery, compile_query
from quaestor.continuous.engine import NOTHING, Evaluated, EvaluatedTogether, PreparedQuery, Read
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.executors.stored import StoredRows
from quaestor.continuous.reach import Reach, columns_read, reaches
from quaestor.continuous.sharing import shared_plan
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot
from quaestor.tables.schema import Schema


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

    @property
    def shape(self) -> str:
        """Incremental query without its constants."""
        return self.compiled.signature

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


class SqlPlan:
    """Compiled queries of equal shape as one plan. Implements SharedQuery."""

    def __init__(self, queries: Mapping[str, SqlQuery], catalogue: Catalogue, executor: Executor) -> None:
        self._queries = queries
        self._plan = shared_plan({name: query.compiled for name, query in queries.items()})
        self._catalogue = catalogue
        self._executor = executor

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that the queries read."""
        return self._plan.tables

    def rows(self, afters: Mapping[str, int], upto: int, snapshots: Mapping[str, Snapshot]) -> EvaluatedTogether:
        """Return the results of each query. See SharedQuery."""
        expression = next(iter(self._queries.values())).compiled.incremental
        tables = {}
        for name in self._plan.tables:
            table, snapshot = self._catalogue.open(name), snapshots[name]
            intervals = [
                self._queries[query].reaches.get(name, Reach()).interval(after, upto) if after else (-1, upto)
                for query, after in afters.items()
            ]
            interval = (
                min((after for after, _ in intervals), default=upto),
                max((last for _, last in intervals), default=upto),
            )
            tables[name] = StoredRows(table, snapshot, interval, columns_read(expression, table.schema(snapshot)))
        taus = {name: after or None for name, after in afters.items()}
        rows = self._plan.rows(self._executor, taus, upto, tables) if taus else {}
        return EvaluatedTogether(rows, reduce(Read.plus, (stored.read for stored in tables.values()), NOTHING))


class SqlEngine:
    """Compiler and executor. Implements Engine and SharingEngine."""

    def __init__(self, catalogue: Catalogue, executor: Executor) -> None:
        self._catalogue = catalogue
        self._executor = executor

    def prepare(self, text: str) -> SqlQuery:
        """Compile a text against the present columns of the tables. Raises QueryRefusedError, DependencyError."""
        return SqlQuery(compile_query(text, self._schemas(text)), self._catalogue, self._executor)

    def together(self, queries: Mapping[str, PreparedQuery]) -> SqlPlan:
        """Return the plan of queries of equal shape, by name."""
        compiled = {name: query for name, query in queries.items() if isinstance(query, SqlQuery)}
        return SqlPlan(compiled, self._catalogue, self._executor)

    def _schemas(self, text: str) -> dict[str, Schema]:
        """Return the columns of the tables that a text names; of all tables if it names another one."""
        try:
            named = {table.name for table in sqlglot.parse_one(text, dialect="duckdb").find_all(exp.Table)}
        except sqlglot.errors.SqlglotError:
            return self._catalogue.schemas()
        if not named or not named <= set(self._catalogue.names()):
            return self._catalogue.schemas()
        return {name: self._catalogue.open(name).schema() for name in named}
