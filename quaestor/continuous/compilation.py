"""Compilation of a continuous query: text to standard form, monotone query and incremental query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from quaestor.continuous.explanation import explanation, explanation_of_groups
from quaestor.continuous.instants import timestamp
from quaestor.continuous.rules.constants import Constant, separated
from quaestor.continuous.rules.derivations import Derivation, derivations
from quaestor.continuous.rules.groups import (
    entries_of_groups,
    first_only_groups,
    incremental_groups,
    monotone_groups,
    standard_groups,
)
from quaestor.continuous.rules.incremental import first_only, incremental
from quaestor.continuous.rules.monotone import at_each_instant, entries, monotone
from quaestor.continuous.rules.orders import KnownOrder, bounded_by_orders, used_orders
from quaestor.continuous.rules.recurrence import recurrence
from quaestor.continuous.sql.blocks import selections_of
from quaestor.continuous.sql.groups import Grouped, grouped_of
from quaestor.continuous.sql.model import Selection
from quaestor.continuous.sql.reading import read
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.schema import Schema


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """Continuous query, compiled. Expressions have the placeholders `tau` and `t` for instants.

    text: as the user wrote it.
    dialect: of the text.
    columns: names of the result's columns.
    tables: names of the tables that the query reads.
    standard: result of the query as of t.
    monotone: everything that the query returned at any instant up to t.
    incremental: results that became true in (tau, t]; a row may repeat a row of an earlier run.
    first_only: rows of the monotone query of t that the monotone query of tau lacks.
    entries: rows of the monotone query, with the first instant of each in the column `_instant`.
    repeats_within: ticks after its result within which a row may be returned again; None: without end.
    orders: known orders that the texts use.
    plan: the incremental query without its constants.
    constants: taken out of the plan, in order.
    signature: text of the plan; queries of equal signature can share a plan.
    explanation: meaning over time, memory needed and order knowledge used, a sentence a line.
    """

    text: str
    dialect: str
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    standard: exp.Query
    monotone: exp.Query
    incremental: exp.Query
    first_only: exp.Query
    entries: exp.Query
    repeats_within: int | None
    orders: tuple[KnownOrder, ...]
    plan: exp.Query
    constants: tuple[Constant, ...]
    signature: str
    explanation: str

    @property
    def may_repeat(self) -> bool:
        """Whether the incremental query may return a row of an earlier run."""
        return self.repeats_within != 0


def compile_query(
    text: str, catalogue: Mapping[str, Schema], *, dialect: str = "duckdb", orders: Sequence[KnownOrder] = ()
) -> CompiledQuery:
    """Compile the text of a continuous query.

    catalogue: schemas of the tables by name; each table also has the column `ts`.
    dialect: name of the SQL dialect, as sqlglot names it.
    orders: known orders between rows.

    Raises QueryRefusedError.
    """
    tree = read(text, catalogue, dialect)
    grouped = grouped_of(tree, catalogue)
    if grouped is not None:
        return _of_groups(text, dialect, grouped, catalogue, orders)
    selections = selections_of(tree, catalogue)
    candidates = derivations(selections, orders)
    if not candidates:
        raise QueryRefusedError(1, 1, "the conditions are never true", "correct the conditions on current time")
    names = tuple(name for name, _ in selections[0].columns)
    used = tuple(sorted({order for part in selections for order in used_orders(part.conjunction, orders)}, key=str))
    # An order may be broken later, and then delivered rows must be known.
    without_orders = derivations(selections) if used else candidates
    repeats_within = recurrence(without_orders) if _may_repeat(selections, without_orders) else 0
    delta = incremental(candidates)
    parted = separated(delta, catalogue)
    return CompiledQuery(
        text=text,
        dialect=dialect,
        columns=names,
        tables=tuple(sorted({table.name for part in selections for table in part.conjunction.all_tables()})),
        standard=at_each_instant(selections),
        monotone=monotone(candidates),
        incremental=delta,
        first_only=first_only(candidates),
        entries=entries(candidates),
        repeats_within=repeats_within,
        orders=used,
        plan=parted.plan,
        constants=parted.constants,
        signature=parted.plan.sql("duckdb"),
        explanation=explanation(selections, candidates, used, repeats_within=repeats_within),
    )


def _of_groups(
    text: str, dialect: str, grouped: Grouped, catalogue: Mapping[str, Schema], orders: Sequence[KnownOrder]
) -> CompiledQuery:
    used = tuple(sorted(used_orders(grouped.conjunction, orders), key=str))
    grouped = replace(grouped, conjunction=bounded_by_orders(grouped.conjunction, used))
    delta = incremental_groups(grouped)
    parted = separated(delta, catalogue)
    return CompiledQuery(
        text=text,
        dialect=dialect,
        columns=tuple(name for name, _ in grouped.columns),
        tables=tuple(sorted({table.name for table in grouped.conjunction.all_tables()})),
        standard=standard_groups(grouped),
        monotone=monotone_groups(grouped),
        incremental=delta,
        first_only=first_only_groups(grouped),
        entries=entries_of_groups(grouped),
        repeats_within=None,
        orders=used,
        plan=parted.plan,
        constants=parted.constants,
        signature=parted.plan.sql("duckdb"),
        explanation=explanation_of_groups(grouped, used),
    )


def at_instant(compiled: CompiledQuery, t: int) -> exp.Query:
    """Return the query as of an instant, in microseconds, as SQL without placeholders: the ad hoc run."""
    instant = exp.cast(exp.Literal.string(str(timestamp(t))), "TIMESTAMP")
    expression = compiled.standard.copy()
    return expression.transform(  # type: ignore[return-value]
        lambda node: instant.copy() if isinstance(node, exp.Placeholder) else node
    )


def _may_repeat(selections: Sequence[Selection], candidates: Sequence[Derivation]) -> bool:
    """Whether two runs may return equal rows. A result that holds `ts` of its only table cannot recur in another run.

    A row enters at an instant that its own columns decide where no other table, version or alternative takes part.
    """
    if len(candidates) != 1 or not candidates[0].plain or len(candidates[0].tables) != 1:
        return True
    table = candidates[0].tables[0]
    selected = {value.sql() for _, value in selections[0].columns}
    decisive = {part.sql() for moment in candidates[0].moments for part in moment.base.find_all(exp.Column)}
    return bool(table.key) or not decisive <= selected
