"""Engine of SQL: texts are compiled, and executed on versioned tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, reduce
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp

from quaestor.continuous.compilation import CompiledQuery, compile_query
from quaestor.continuous.declared_orders import DeclaredOrders
from quaestor.continuous.engine import NOTHING, Evaluated, EvaluatedTogether, PreparedQuery, Read
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.executors.stored import StoredRows, stored
from quaestor.continuous.reach import Reach, columns_read, reaches
from quaestor.continuous.sharing import shared_plan
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot
from quaestor.tables.schema import Schema


class OrderedQuery(NamedTuple):
    """Query compiled with declared orders, and the declarations."""

    compiled: CompiledQuery
    declared: DeclaredOrders


class SqlQuery:
    """Compiled query on the tables of a catalogue. Implements PreparedQuery.

    compiled: without declared orders.
    ordered: with declared orders; None: the query uses none.
    """

    def __init__(
        self, compiled: CompiledQuery, catalogue: Catalogue, executor: Executor, ordered: OrderedQuery | None = None
    ) -> None:
        self._exact = compiled
        self._catalogue = catalogue
        self._executor = executor
        self._ordered = ordered

    @property
    def compiled(self) -> CompiledQuery:
        """Texts of the query and its meaning over time. With declared orders, as long as they hold."""
        return self._exact if self._ordered is None else self._ordered.compiled

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that the query reads."""
        return self._exact.tables

    @property
    def shape(self) -> str:
        """Incremental query without its constants; with declared orders also without them."""
        return f"{self.compiled.signature}\n{self._exact.signature}" if self._ordered else self._exact.signature

    @property
    def repeats_within(self) -> int | None:
        """Microseconds after its result within which a row may be among the rows of a run again; None: without end."""
        return self._exact.repeats_within

    @property
    def reaches(self) -> dict[str, Reach]:
        """Rows of each table that a run reads."""
        return self._ordered_reaches if self._ordered else self._exact_reaches

    @cached_property
    def _exact_reaches(self) -> dict[str, Reach]:
        return reaches(self._exact.incremental)

    @cached_property
    def _ordered_reaches(self) -> dict[str, Reach]:
        return reaches(self.compiled.incremental)

    def check_orders(self, upto: int, snapshots: Mapping[str, Snapshot]) -> None:
        """Go over to the exact rule for good if a row up to an instant breaks a used order. Raises DependencyError."""
        ordered = self._ordered
        if ordered is not None and not ordered.declared.hold(ordered.compiled.orders, upto, snapshots):
            self._ordered = None

    def rows(self, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> Evaluated:
        """Return the results that entered in (after, upto]. See PreparedQuery."""
        self.check_orders(upto, snapshots)
        return self._executed(self.compiled.incremental, after, upto, snapshots, self.reaches)

    def entries(self, upto: int, snapshots: Mapping[str, Snapshot]) -> Any:
        """Return everything that the query returns up to an instant, each with its first instant in `_instant`."""
        return self._executed(self._exact.entries, 0, upto, snapshots, {}).rows

    def _executed(
        self,
        expression: exp.Query,
        after: int,
        upto: int,
        snapshots: Mapping[str, Snapshot],
        reached: Mapping[str, Reach],
    ) -> Evaluated:
        tables = stored(expression, self._catalogue, self.tables, after, upto, snapshots, reached)
        rows = self._executor.rows(expression, after or None, upto, tables)
        return Evaluated(rows, reduce(Read.plus, (table.read for table in tables.values()), NOTHING))


class SqlPlan:
    """Compiled queries of equal shape as one plan. Implements SharedQuery."""

    def __init__(self, queries: Mapping[str, SqlQuery], catalogue: Catalogue, executor: Executor) -> None:
        self._queries = queries
        self._catalogue = catalogue
        self._executor = executor

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that the queries read."""
        return next(iter(self._queries.values())).tables

    def rows(self, afters: Mapping[str, int], upto: int, snapshots: Mapping[str, Snapshot]) -> EvaluatedTogether:
        """Return the results of each query. See SharedQuery."""
        if not afters:
            return EvaluatedTogether({}, NOTHING)
        for query in self._queries.values():
            query.check_orders(upto, snapshots)
        plan = shared_plan({name: query.compiled for name, query in self._queries.items()})
        expression = next(iter(self._queries.values())).compiled.incremental
        tables = {}
        for name in plan.tables:
            table, snapshot = self._catalogue.open(name), snapshots[name]
            intervals = [
                self._queries[query].reaches.get(name, Reach()).interval(after, upto) if after else (-1, upto)
                for query, after in afters.items()
            ]
            interval = min(after for after, _ in intervals), max(last for _, last in intervals)
            tables[name] = StoredRows(table, snapshot, interval, columns_read(expression, table.schema(snapshot)))
        rows = plan.rows(self._executor, {name: after or None for name, after in afters.items()}, upto, tables)
        return EvaluatedTogether(rows, reduce(Read.plus, (table.read for table in tables.values()), NOTHING))


class SqlEngine:
    """Compiler and executor. Implements Engine and SharingEngine.

    orders: declared orders of the tables.
    """

    def __init__(self, catalogue: Catalogue, executor: Executor) -> None:
        self.orders = DeclaredOrders(catalogue, executor)
        self._catalogue = catalogue
        self._executor = executor

    def prepare(self, text: str) -> SqlQuery:
        """Compile a text against the present columns of the tables. Raises QueryRefusedError, DependencyError."""
        schemas = self._schemas(text)
        exact = compile_query(text, schemas)
        orders = self.orders.holding(exact.tables)
        compiled = compile_query(text, schemas, orders=orders) if orders else exact
        ordered = OrderedQuery(compiled, self.orders) if compiled.orders else None
        return SqlQuery(exact, self._catalogue, self._executor, ordered)

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
