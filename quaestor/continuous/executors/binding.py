"""Instants in the place of a query's placeholders, and the interval of instants that each table is read for (I6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from quaestor.continuous.instants import BEGINNING, timestamp
from quaestor.continuous.sql.intervals import ticks_of
from quaestor.tables.instants import instant_of
from quaestor.tables.schema import TS

_EARLIEST: Final = instant_of(BEGINNING)
_LATEST: Final = 253_402_300_799_999_999
"""Instants that engines can write as timestamps: the years 1 to 9999."""
_COMPARISONS: Final = (exp.LT, exp.LTE, exp.GT, exp.GTE)


@dataclass(frozen=True, slots=True)
class Window:
    """Instants (after, upto] of rows; None: no bound."""

    after: int | None = None
    upto: int | None = None


def bound(expression: exp.Query, tau: int | None, t: int) -> exp.Query:
    """Return the expression at two instants: literals take the place of `tau` and `t`.

    Constant intervals move to the literal, so that engines compare a column with a constant: `ts + 14 days <= t` becomes
    `ts <= t - 14 days`.
    """
    instants = {"tau": _EARLIEST if tau is None else tau, "t": t}
    copy = expression.copy()
    for node in list(copy.find_all(exp.Placeholder)):
        if node.name not in instants:
            continue
        instant, parent = instants[node.name], node.parent
        if isinstance(parent, _COMPARISONS):
            other = parent.expression if parent.this is node else parent.this
            base, ticks = _shifted(other)
            if base is not other:
                other.replace(base)
                instant -= ticks
        node.replace(timestamp_literal(instant))
    return copy


def windows(query: exp.Select) -> dict[str, Window]:
    """Return the windows of the tables of a bound SELECT, by alias, where its conditions bound `ts`."""
    bounds: dict[str, Window] = {}
    for alias, after, upto in _bounds(query):
        before = bounds.get(alias, Window())
        bounds[alias] = Window(
            max((value for value in (before.after, after) if value is not None), default=None),
            min((value for value in (before.upto, upto) if value is not None), default=None),
        )
    return bounds


def _bounds(query: exp.Select) -> Iterator[tuple[str, int | None, int | None]]:
    where = query.args.get("where")
    if where is None:
        return
    for condition in conjuncts(where.this):
        if not isinstance(condition, _COMPARISONS):
            continue
        low, high = condition.this, condition.expression
        if isinstance(condition, exp.GT | exp.GTE):
            low, high = high, low
        strict = isinstance(condition, exp.LT | exp.GT)
        if _is_ts(high) and (instant := _instant(low)) is not None:
            yield high.table, instant if strict else instant - 1, None
        elif _is_ts(low) and (instant := _instant(high)) is not None:
            yield low.table, None, instant - 1 if strict else instant


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins."""
    match condition:
        case exp.Paren():
            yield from conjuncts(condition.this)
        case exp.And():
            yield from conjuncts(condition.this)
            yield from conjuncts(condition.expression)
        case _:
            yield condition


def _is_ts(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name == TS and bool(node.table)


def _shifted(node: exp.Expr) -> tuple[exp.Expr, int]:
    """Return the base of an instant, and the constant ticks added to it."""
    if isinstance(node, exp.Add | exp.Sub):
        ticks = ticks_of(node.expression)
        if ticks is not None:
            base, inner = _shifted(node.this)
            return base, inner + (ticks if isinstance(node, exp.Add) else -ticks)
    return node, 0


def timestamp_literal(instant: int) -> exp.Expr:
    """Return an instant as SQL, at most the last that engines can write."""
    within = min(max(instant, _EARLIEST), _LATEST)
    return exp.cast(exp.Literal.string(str(timestamp(within))), "TIMESTAMP")


def _instant(node: exp.Expr) -> int | None:
    """Return the instant of a literal of `bound`; None: another expression."""
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal) or not node.this.is_string:
        return None
    try:
        return instant_of(BEGINNING.fromisoformat(node.this.name))
    except ValueError:
        return None
