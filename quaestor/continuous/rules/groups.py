"""Grouped queries over time: which groups fulfil HAVING, or are among the first k, at each instant of change (R18).

The aggregates of a group change only where a combination of its rows enters or leaves. Combinations that never leave are
aggregated by running windows; others are aggregated anew at each instant of change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from quaestor.continuous.rules.derivations import changes, latest
from quaestor.continuous.rules.monotone import INSTANT, TAU, placeholder
from quaestor.continuous.sql.current_time import T
from quaestor.continuous.sql.groups import STATE, Aggregate, Grouped
from quaestor.continuous.sql.model import Instant, with_aliases
from quaestor.continuous.sql.writing import NeverError, at_most, expression_of, holds_at, named, select, union

_AT: Final = "_at"
"""Column of states: the instant."""
_CHANGE: Final = "_change"
_ROWS: Final = "_entered"
_PLACE: Final = "_place"


def standard_groups(grouped: Grouped) -> exp.Query:
    """Return the result of a grouped query as of the instant t."""
    instant = Instant(placeholder(T))
    rows = select(named(grouped.values), grouped.conjunction.tables, holds_at(grouped.conjunction, instant))
    states = (
        exp.Select()
        .select(*_keys(grouped, _ROWS), *_aggregates(grouped))
        .from_(rows.subquery(_ROWS))
        .group_by(*(exp.column(name, table=_ROWS) for name in grouped.keys))
    )
    return _results(grouped, states, at=False).distinct()


def monotone_groups(grouped: Grouped, end: str = T) -> exp.Query:
    """Return everything that a grouped query returned at any instant up to `end`."""
    return _results(grouped, _states(grouped, None, end)).distinct()


def incremental_groups(grouped: Grouped) -> exp.Query:
    """Return the results at each instant of change in (tau, t]."""
    return _results(grouped, _states(grouped, TAU, T)).distinct()


def first_only_groups(grouped: Grouped) -> exp.Select:
    """Return the exact difference: rows of the incremental query that were no results up to tau."""
    names = [name for name, _ in grouped.columns]
    equal = [
        exp.NullSafeEQ(this=exp.column(name, table="older"), expression=exp.column(name, table="delta"))
        for name in names
    ]
    older = exp.Select().select("1").from_(monotone_groups(grouped, TAU).subquery("older")).where(*equal)
    delta = incremental_groups(grouped).subquery("delta")
    columns = (exp.column(name, table="delta") for name in names)
    return exp.Select().select(*columns).from_(delta).where(exp.not_(exp.Exists(this=older)))


def entries_of_groups(grouped: Grouped) -> exp.Select:
    """Return the rows of the monotone query, each with its first instant."""
    rows = _results(grouped, _states(grouped, None, T))
    rows = rows.select(exp.alias_(exp.column(_AT, table=STATE), INSTANT))
    names = [exp.column(name) for name, _ in grouped.columns]
    first = exp.alias_(exp.Min(this=exp.column(INSTANT)), INSTANT)
    return exp.Select().select(*names, first).from_(rows.subquery("derived")).group_by(*names)


def never_leaves(grouped: Grouped) -> bool:
    """Whether a combination of rows stays in its group for ever."""
    return not grouped.conjunction.uppers and not grouped.conjunction.absent


def _results(grouped: Grouped, states: exp.Select, *, at: bool = True) -> exp.Select:
    """Return the columns of the states that fulfil HAVING and are among the first k of their instant."""
    conditions = [] if grouped.having is None else [grouped.having.copy()]
    if grouped.limit is not None:
        ties = [exp.Ordered(this=exp.column(name, table=STATE), nulls_first=False, desc=False) for name in grouped.keys]
        place = exp.Window(
            this=exp.RowNumber(),
            partition_by=[exp.column(_AT, table=STATE)] if at else [],
            order=exp.Order(expressions=[*(item.copy() for item in grouped.order), *ties]),
        )
        ranked = exp.Select().select(f"{STATE}.*", exp.alias_(place, _PLACE)).from_(states.subquery(STATE))
        states = ranked.where(*conditions) if conditions else ranked
        conditions = [exp.LTE(this=exp.column(_PLACE, table=STATE), expression=exp.Literal.number(grouped.limit))]
    query = exp.Select().select(*named(grouped.columns)).from_(states.subquery(STATE))
    return query.where(*conditions) if conditions else query


def _states(grouped: Grouped, start: str | None, end: str) -> exp.Select:
    """Return groups with their aggregates at each instant of change in (start, end]."""
    if never_leaves(grouped) and grouped.limit is None:
        return _running(grouped, start, end)
    return _anew(grouped, start, end)


def _anew(grouped: Grouped, start: str | None, end: str) -> exp.Select:
    """Aggregate the combinations that are alive at each instant of change; without a limit only those of changed groups."""
    part = grouped.conjunction
    own = grouped.limit is None
    at = exp.column(_AT, table=_CHANGE)
    alive = select([*named(grouped.values), exp.alias_(at, _AT)], part.tables, holds_at(part, Instant(at))).join(
        _changes(grouped, start, end, keys=own).subquery(_CHANGE), join_type="cross"
    )
    if own:
        values = dict(grouped.values)
        alive = alive.where(
            *(
                exp.NullSafeEQ(this=values[name].copy(), expression=exp.column(name, table=_CHANGE))
                for name in grouped.keys
            )
        )
    at = exp.column(_AT, table=_ROWS)
    return (
        exp.Select()
        .select(*_keys(grouped, _ROWS), exp.alias_(at.copy(), _AT), *_aggregates(grouped))
        .from_(alive.subquery(_ROWS))
        .group_by(*(exp.column(name, table=_ROWS) for name in grouped.keys), at.copy())
    )


def _changes(grouped: Grouped, start: str | None, end: str, *, keys: bool) -> exp.Query:
    """Return the instants at which combinations enter or leave, with the keys of their groups."""
    branches = []
    values = dict(grouped.values)
    for names, candidate in changes(grouped.conjunction):
        columns = [exp.alias_(expression_of(candidate.instant), _AT)]
        if keys:
            columns = [*(exp.alias_(with_aliases(values[name], names), name) for name in grouped.keys), *columns]
        try:
            window = _window(candidate.instant, start, end)
        except NeverError:  # pragma: no cover - an instant of a row is never before all runs
            continue
        branches.append(select(columns, candidate.tables, (*candidate.conditions, *window)))
    return union(branches)


def _window(instant: Instant, start: str | None, end: str) -> Iterator[exp.Expr]:
    sides = [(instant, Instant(placeholder(end)))]
    if start is not None:
        sides.append((Instant(placeholder(start), 1), instant))
    for earlier, later in sides:
        condition = at_most(earlier, later)
        if condition is not None:
            yield condition


def _running(grouped: Grouped, start: str | None, end: str) -> exp.Select:
    """Aggregate by windows over the rows of changed groups: combinations of one instant count together."""
    part = grouped.conjunction
    instant = latest(part.lowers)
    conditions = [*part.static, *(condition for lower in part.lowers for condition in _window(lower, None, end))]
    rows = select([*named(grouped.values), exp.alias_(expression_of(instant), _AT)], part.tables, conditions)
    if start is not None:
        values = dict(grouped.values)
        equal = [
            exp.NullSafeEQ(this=values[name].copy(), expression=exp.column(name, table=_CHANGE))
            for name in grouped.keys
        ]
        changed = _changes(grouped, start, end, keys=True).subquery(_CHANGE)
        rows = rows.where(exp.Exists(this=exp.Select().select("1").from_(changed).where(*equal)))
    firsts = [exp.alias_(_first(grouped, item), f"{name}_first") for name, item in grouped.aggregates if item.different]
    if firsts:
        rows = exp.Select().select(f"{_ROWS}.*", *firsts).from_(rows.subquery(_ROWS))
    at = exp.column(_AT, table=_ROWS)
    states = (
        exp.Select()
        .select(*_keys(grouped, _ROWS), exp.alias_(at.copy(), _AT))
        .select(*(exp.alias_(_window_of(grouped, name, item), name) for name, item in grouped.aggregates))
        .from_(rows.subquery(_ROWS))
    )
    if start is None:
        return states
    late = exp.LT(this=placeholder(start), expression=exp.column(_AT, table=STATE))
    return exp.Select().select(f"{STATE}.*").from_(states.subquery(STATE)).where(late)


def _first(grouped: Grouped, item: Aggregate) -> exp.Expr:
    """Return 1 for the first row of each value of a group, 0 for others and for NULL."""
    value = exp.column(item.value or "", table=_ROWS)
    number = exp.Window(
        this=exp.RowNumber(),
        partition_by=[*(exp.column(name, table=_ROWS) for name in grouped.keys), value],
        order=exp.Order(expressions=[exp.Ordered(this=exp.column(_AT, table=_ROWS))]),
    )
    counted = exp.and_(exp.EQ(this=number, expression=exp.Literal.number(1)), exp.not_(value.copy().is_(exp.null())))
    return exp.Case(ifs=[exp.If(this=counted, true=exp.Literal.number(1))], default=exp.Literal.number(0))


def _window_of(grouped: Grouped, name: str, item: Aggregate) -> exp.Expr:
    if item.different:
        total: exp.Expr = exp.Sum(this=exp.column(f"{name}_first", table=_ROWS))
    else:
        total = item.of(None if item.value is None else exp.column(item.value, table=_ROWS))
    running = exp.Window(
        this=total,
        partition_by=[exp.column(key, table=_ROWS) for key in grouped.keys],
        order=exp.Order(expressions=[exp.Ordered(this=exp.column(_AT, table=_ROWS))]),
    )
    return item.typed(running)


def _keys(grouped: Grouped, alias: str) -> list[exp.Expr]:
    return [exp.alias_(exp.column(name, table=alias), name) for name in grouped.keys]


def _aggregates(grouped: Grouped) -> list[exp.Expr]:
    return [
        exp.alias_(item.typed(item.of(None if item.value is None else exp.column(item.value, table=_ROWS))), name)
        for name, item in grouped.aggregates
    ]
