"""Engine of SQL: texts are compiled, and executed on versioned tables. Texts of one template are compiled once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, reduce
from typing import Any, Final, NamedTuple

import sqlglot
from sqlglot import exp

from quaestor.continuous.compilation import CompiledQuery, compile_query
from quaestor.continuous.declared_orders import DeclaredOrders
from quaestor.continuous.engine import (
    NOTHING,
    Evaluated,
    EvaluatedTogether,
    OutdatedCompilationError,
    PreparedQuery,
    Read,
)
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.executors.stored import StoredRows, stored
from quaestor.continuous.reach import Reach, columns_read, reaches
from quaestor.continuous.rules.constants import Constant
from quaestor.continuous.rules.orders import KnownOrder
from quaestor.continuous.sharing import plan_of
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.continuous.templates import Places, Template, template_of
from quaestor.continuous.trial import refuse_what_cannot_run
from quaestor.errors import QuaestorError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot
from quaestor.tables.schema import Schema

_MOST_TEMPLATES: Final = 1_000
"""Templates that an engine remembers."""
_SEEN: Final = "seen"
"""Mark of a template with one text up to now."""
_ALONE: Final = "alone"
"""Mark of a template whose texts are compiled by themselves."""


class Compiled(NamedTuple):
    """Compiled text.

    exact: without declared orders.
    ordered: with the declared orders that hold; None: the query uses none.
    schemas: columns of the tables that it was compiled against.
    """

    exact: CompiledQuery
    ordered: CompiledQuery | None
    schemas: Mapping[str, Schema]


class Member(NamedTuple):
    """Query of a template, which was compiled with marks.

    exact, ordered: its constants, without and with declared orders.
    alone: compiles its own text.
    """

    exact: tuple[Constant, ...]
    ordered: tuple[Constant, ...]
    alone: Callable[[], SqlQuery]


class OrderedQuery(NamedTuple):
    """Query compiled with declared orders, and the declarations."""

    compiled: CompiledQuery
    declared: DeclaredOrders


class SqlQuery:
    """Compiled query on the tables of a catalogue. Implements PreparedQuery.

    compiled: without declared orders.
    ordered: with declared orders; None: the query uses none.
    member: of the template that `compiled` and `ordered` are then compiled from; None: they are the query's own.
    schemas: columns of the tables that it was compiled against; None: no run compares them with the present columns.
    """

    def __init__(
        self,
        compiled: CompiledQuery,
        catalogue: Catalogue,
        executor: Executor,
        ordered: OrderedQuery | None = None,
        member: Member | None = None,
        schemas: Mapping[str, Schema] | None = None,
    ) -> None:
        self._exact = compiled
        self._catalogue = catalogue
        self._executor = executor
        self._ordered = ordered
        self._member = member
        self._schemas = {} if schemas is None else {name: schemas[name] for name in compiled.tables}

    @property
    def compiled(self) -> CompiledQuery:
        """Texts of the query and its meaning over time. With declared orders, as long as they hold."""
        return self.compiled_shape if self._alone is None else self._alone.compiled

    @property
    def compiled_shape(self) -> CompiledQuery:
        """Compiled query of the same shape. Its plan is that of this query; its constants may be others."""
        return self._exact if self._ordered is None else self._ordered.compiled

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Constants of this query for the plan of its shape."""
        if self._member is None:
            return self.compiled_shape.constants
        return self._member.exact if self._ordered is None else self._member.ordered

    @cached_property
    def _alone(self) -> SqlQuery | None:
        """The query with a compilation of its own text; None: it has that already."""
        return None if self._member is None else self._member.alone()

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables that the query reads."""
        return self._exact.tables

    @property
    def shape(self) -> str:
        """Incremental query without its constants; with declared orders also without them."""
        return f"{self.compiled_shape.signature}\n{self._exact.signature}" if self._ordered else self._exact.signature

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
        return reaches(self.compiled_shape.incremental)

    def check_columns(self, snapshots: Mapping[str, Snapshot]) -> None:
        """Raise OutdatedCompilationError if the query was compiled against other columns than those of snapshots."""
        for name, schema in self._schemas.items():
            if self._catalogue.open(name).schema(snapshots[name]) != schema:
                raise OutdatedCompilationError(
                    f"the table {name!r} has new or wider columns: try again", retryable=True
                )

    def check_orders(
        self, upto: int, snapshots: Mapping[str, Snapshot], holding: dict[KnownOrder, bool] | None = None
    ) -> None:
        """Go over to the exact rule for good if a row up to an instant breaks a used order. Raises DependencyError.

        holding: orders that were checked for this run; the method adds the orders that it checks.
        """
        ordered = self._ordered
        if ordered is None:
            return
        known = {} if holding is None else holding
        for order in ordered.compiled.orders:
            if order not in known:
                known[order] = ordered.declared.hold([order], upto, snapshots)
            if not known[order]:
                self._ordered = None

    def rows(self, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> Evaluated:
        """Return the results that entered in (after, upto]. See PreparedQuery."""
        if self._alone is not None:
            return self._alone.rows(after, upto, snapshots)
        self.check_columns(snapshots)
        self.check_orders(upto, snapshots)
        return self._executed(self.compiled.incremental, after, upto, snapshots, self.reaches)

    def entries(self, upto: int, snapshots: Mapping[str, Snapshot]) -> Any:
        """Return everything that the query returns up to an instant, each with its first instant in `_instant`."""
        if self._alone is not None:
            return self._alone.entries(upto, snapshots)
        return self._executed(self._exact.entries, 0, upto, snapshots, {}).rows

    def at(self, instant: int, snapshots: Mapping[str, Snapshot]) -> Any:
        """Return the rows that are true at an instant: the ad hoc run."""
        if self._alone is not None:
            return self._alone.at(instant, snapshots)
        return self._executed(self._exact.standard, 0, instant, snapshots, {}).rows

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
        for query in self._different().values():
            query.check_columns(snapshots)
        holding: dict[KnownOrder, bool] = {}
        for query in self._queries.values():
            query.check_orders(upto, snapshots, holding)
        shape = next(iter(self._queries.values())).compiled_shape
        if any(query.compiled_shape.signature != shape.signature for query in self._different().values()):
            raise ValueError("a shared plan needs queries of one signature")
        constants = {name: query.constants for name, query in self._queries.items()}
        plan = plan_of(shape, constants, lambda name: self._queries[name].compiled.incremental)
        expression = shape.incremental
        reached = {number: query.reaches for number, query in self._different().items()}
        tables = {}
        for name in plan.tables:
            table, snapshot = self._catalogue.open(name), snapshots[name]
            intervals = [
                reached[id(self._queries[query].compiled_shape.incremental)].get(name, Reach()).interval(after, upto)
                if after
                else (-1, upto)
                for query, after in afters.items()
            ]
            interval = min(after for after, _ in intervals), max(last for _, last in intervals)
            tables[name] = StoredRows(table, snapshot, interval, columns_read(expression, table.schema(snapshot)))
        rows = plan.rows(self._executor, {name: after or None for name, after in afters.items()}, upto, tables)
        return EvaluatedTogether(rows, reduce(Read.plus, (table.read for table in tables.values()), NOTHING))

    def _different(self) -> dict[int, SqlQuery]:
        """Return a query of each compilation, by the identity of its incremental query."""
        return {id(query.compiled_shape.incremental): query for query in self._queries.values()}


class _Family(NamedTuple):
    """Template, compiled with marks against some columns and orders."""

    compiled: Compiled
    exact: Places
    ordered: Places
    orders: Sequence[KnownOrder]


class SqlEngine:
    """Compiler and executor. Implements Engine and SharingEngine.

    orders: declared orders of the tables.
    """

    def __init__(self, catalogue: Catalogue, executor: Executor) -> None:
        self.orders = DeclaredOrders(catalogue, executor)
        self._catalogue = catalogue
        self._executor = executor
        self._families: dict[Template, _Family | str] = {}

    def prepare(self, text: str) -> SqlQuery:
        """Compile a text against the present columns of the tables. Raises QueryRefusedError, DependencyError."""
        (prepared,) = self.prepare_all([text])
        if isinstance(prepared, QuaestorError):
            raise prepared
        return prepared

    def prepare_all(self, texts: Sequence[str]) -> list[SqlQuery | QuaestorError]:
        """Compile texts against the present columns of the tables, those of one template once. See SharingEngine."""
        parted = [template_of(text) for text in texts]
        counts = Counter(template for template, _ in parted)
        current: dict[Template, _Family | None] = {}
        prepared: list[SqlQuery | QuaestorError] = []
        for text, (template, values) in zip(texts, parted, strict=True):
            try:
                if template not in current:
                    current[template] = self._family(template, counts[template])
                family = current[template]
                member = None if family is None else self._member(family, text, values)
                prepared.append(
                    self._alone(text) if family is None or member is None else self._query(family.compiled, member)
                )
            except QuaestorError as error:
                prepared.append(error)
        return prepared

    def together(self, queries: Mapping[str, PreparedQuery]) -> SqlPlan:
        """Return the plan of queries of equal shape, by name."""
        compiled = {name: query for name, query in queries.items() if isinstance(query, SqlQuery)}
        return SqlPlan(compiled, self._catalogue, self._executor)

    def _query(self, compiled: Compiled, member: Member | None = None) -> SqlQuery:
        ordered = None if compiled.ordered is None else OrderedQuery(compiled.ordered, self.orders)
        return SqlQuery(compiled.exact, self._catalogue, self._executor, ordered, member, compiled.schemas)

    def _member(self, family: _Family, text: str, values: Sequence[exp.Expr]) -> Member | None:
        """Return the member of a family with some values; None: a value does not fit."""
        exact, ordered = family.exact.filled(values), family.ordered.filled(values)
        if exact is None or ordered is None:
            return None
        return Member(exact, ordered, partial(self._alone, text))

    def _alone(self, text: str) -> SqlQuery:
        compiled, _ = self._compiled(text)
        return self._query(compiled)

    def _family(self, template: Template, count: int) -> _Family | None:
        """Return the compiled template for the present columns and orders; None: each text is compiled by itself.

        count: texts of the template at present. A single text is compiled by itself when the template is new.
        """
        known = self._families.get(template)
        if not template.texts or known == _ALONE:
            return None
        if isinstance(known, _Family) and self._is_current(known):
            return known
        if known is None and count == 1:
            self._remember(template, _SEEN)
            return None
        try:
            compiled, orders = self._compiled(template.marked())
        except QueryRefusedError:
            return None  # the compilation of each text names the place in that text
        exact = template.places(compiled.exact)
        ordered = exact if compiled.ordered is None else template.places(compiled.ordered)
        if exact is None or ordered is None:
            self._remember(template, _ALONE)
            return None
        family = _Family(compiled, exact, ordered, orders)
        self._remember(template, family)
        return family

    def _is_current(self, family: _Family) -> bool:
        schemas = {name: self._catalogue.open(name).schema() for name in family.compiled.schemas}
        return schemas == family.compiled.schemas and self.orders.holding(family.compiled.exact.tables) == family.orders

    def _remember(self, template: Template, family: _Family | str) -> None:
        while len(self._families) >= _MOST_TEMPLATES:
            self._families.pop(next(iter(self._families)), None)
        self._families[template] = family

    def _compiled(self, text: str) -> tuple[Compiled, Sequence[KnownOrder]]:
        """Return a compiled text, with the orders that it was compiled against."""
        schemas = self._schemas(text)
        exact = compile_query(text, schemas)
        refuse_what_cannot_run(exact, schemas)
        orders = self.orders.holding(exact.tables)
        ordered = compile_query(text, schemas, orders=orders) if orders else exact
        return Compiled(exact, ordered if ordered.orders else None, schemas), orders

    def _schemas(self, text: str) -> dict[str, Schema]:
        """Return the columns of the tables that a text names; of all tables if it names another one."""
        try:
            named = {table.name for table in sqlglot.parse_one(text, dialect="duckdb").find_all(exp.Table)}
        except sqlglot.errors.SqlglotError:
            return self._catalogue.schemas()
        if not named or not named <= set(self._catalogue.names()):
            return self._catalogue.schemas()
        return {name: self._catalogue.open(name).schema() for name in named}
