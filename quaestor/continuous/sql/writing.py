"""Standard form to SQL: comparisons of instants, tables of versions, and conjunctions at an instant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlglot import exp

from quaestor.continuous.sql.intervals import interval
from quaestor.continuous.sql.model import UNTIL, Conjunction, Instant, TableUse, distinct
from quaestor.tables.schema import TS

_SECOND: Final = 1_000_000
_END_OF_TIME: Final = "9999-12-31 00:00:00"


class NeverError(Exception):
    """Signal that a condition is false for every row."""


def expression_of(instant: Instant) -> exp.Expr:
    """Return an instant as SQL."""
    base = instant.base.copy()
    if instant.ticks == 0:
        return base
    kind = exp.Add if instant.ticks > 0 else exp.Sub
    return kind(this=base, expression=interval(abs(instant.ticks)))


def at_most(earlier: Instant, later: Instant) -> exp.Expr | None:
    """Return the condition `earlier <= later`; None: true for every row with both instants.

    Raises NeverError where it is false for every row.
    """
    difference = earlier.ticks - later.ticks
    if earlier.name == later.name:
        if difference > 0:
            raise NeverError
        return None
    strict = difference > 0 and (difference - 1) % _SECOND == 0
    if difference <= 0 and difference != 0 and (1 - difference) % _SECOND == 0:
        strict = True
    if strict:
        difference -= 1
    kind = exp.LT if strict else exp.LTE
    left = expression_of(Instant(earlier.base, max(difference, 0)))
    right = expression_of(Instant(later.base, max(-difference, 0)))
    return kind(this=left, expression=right)


def at_most_each(pairs: Iterable[tuple[Instant, Instant]]) -> tuple[exp.Expr, ...]:
    """Return the conditions of pairs (earlier, later) that are not true for every row.

    Raises NeverError.
    """
    return tuple(condition for pair in pairs if (condition := at_most(*pair)) is not None)


def holds_at(part: Conjunction, instant: Instant) -> tuple[exp.Expr, ...]:
    """Return the conditions under which a combination of rows is alive at an instant.

    Raises NeverError.
    """
    return distinct(
        (
            *part.static,
            *at_most_each((bound, instant) for bound in part.lowers),
            *at_most_each((instant, bound) for bound in part.uppers),
            *absent_at(part.absent, instant),
        )
    )


def absent_at(parts: Iterable[Conjunction], instant: Instant) -> tuple[exp.Expr, ...]:
    """Return the conditions that no combination of any part is alive at an instant (R15)."""
    conditions = []
    for part in parts:
        try:
            inner = holds_at(part, instant)
        except NeverError:
            continue
        conditions.append(exp.not_(exp.Exists(this=select([exp.Literal.number(1)], part.tables, inner))))
    return tuple(conditions)


def select(
    columns: Sequence[exp.Expr], tables: Iterable[TableUse], conditions: Iterable[exp.Expr], *, unique: bool = False
) -> exp.Select:
    """Return a SELECT over tables and conditions."""
    uses = list(tables)
    query = exp.Select().select(*(item.copy() for item in columns))
    if uses:
        query = query.from_(_table(uses[0]))
        for use in uses[1:]:
            query = query.join(_table(use), join_type="cross")
    wanted = [condition.copy() for condition in conditions]
    if wanted:
        query = query.where(exp.and_(*wanted, copy=False), copy=False)
    return query.distinct() if unique else query


def named(columns: Iterable[tuple[str, exp.Expr]]) -> list[exp.Expr]:
    """Return the columns of a result with their names."""
    return [exp.alias_(value.copy(), name) for name, value in columns]


def union(queries: Sequence[exp.Select]) -> exp.Query:
    """Return the union of SELECTs, as a set."""
    if len(queries) == 1:
        return queries[0].distinct()
    whole: exp.Query = queries[0]
    for query in queries[1:]:
        whole = exp.union(whole, query, distinct=True, copy=False)
    return whole


def _table(use: TableUse) -> exp.Expr:
    """Return a table; a table of versions gets the instant of each next version (R20)."""
    if not use.key:
        return exp.alias_(exp.table_(use.name), use.alias, table=True)
    following = exp.Window(
        this=exp.Lead(this=exp.column(TS)),
        partition_by=[exp.column(name) for name in use.key],
        order=exp.Order(expressions=[exp.Ordered(this=exp.column(TS))]),
    )
    until = exp.Coalesce(this=following, expressions=[exp.cast(exp.Literal.string(_END_OF_TIME), "TIMESTAMP")])
    versions = exp.Select().select(exp.Star(), exp.alias_(until, UNTIL)).from_(exp.table_(use.name))
    return versions.subquery(use.alias)
