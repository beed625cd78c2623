"""Reach of a run: the instants of each table that an expression over (tau, t] can need, read from its conditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from quaestor.continuous.rules.monotone import TAU
from quaestor.continuous.sql.current_time import T
from quaestor.continuous.sql.intervals import ticks_of
from quaestor.tables.schema import TS, Schema

_BEFORE_ALL = -1


class Reach(NamedTuple):
    """Instants of a table that a run over (tau, t] can need. Lengths in microseconds.

    back: rows after tau - back; None: rows of any age.
    lead: rows up to t - lead.
    """

    back: int | None = None
    lead: int = 0

    def interval(self, tau: int, t: int) -> tuple[int, int]:
        """Return the interval (after, upto] of the run's rows."""
        after = _BEFORE_ALL if self.back is None else max(_BEFORE_ALL, tau - self.back)
        return after, t - self.lead

    def __str__(self) -> str:
        if self.back is None:
            return f"all rows up to {_moment('t', self.lead)}"
        return f"rows in ({_moment('tau', self.back)}, {_moment('t', self.lead)}]"


def reaches(expression: exp.Query) -> dict[str, Reach]:
    """Return the reach of each table by its name. A table that is used twice has the wider reach of both."""
    result: dict[str, Reach] = {}
    for name, reach in _uses(expression):
        known = result.get(name)
        result[name] = reach if known is None else _wider(known, reach)
    return result


def columns_read(expression: exp.Query, schema: Schema) -> list[str]:
    """Return the columns of a table that an expression names."""
    used = {column.name for column in expression.find_all(exp.Column)}
    return [name for name in schema.names if name in used]


def _uses(expression: exp.Query) -> Iterator[tuple[str, Reach]]:
    """Yield each use of a table, with its reach in its SELECT."""
    for select in expression.find_all(exp.Select):
        where = select.args.get("where")
        conditions = list(where.this.flatten()) if where and isinstance(where.this, exp.And) else []
        if where and not conditions:
            conditions = [where.this]
        for source in _sources(select):
            table = source if isinstance(source, exp.Table) else source.find(exp.Table)
            if table is None:
                continue
            if isinstance(source, exp.Table) and isinstance(select.parent, exp.Subquery) and _is_versions(select):
                continue  # its uses are those of the subquery's alias
            back = [length for part in conditions if (length := _back(part, source.alias_or_name)) is not None]
            lead = [length for part in conditions if (length := _lead(part, source.alias_or_name)) is not None]
            is_plain = isinstance(source, exp.Table)  # a later version ends an earlier one
            yield table.name, Reach(min(back, default=None), max(0, *lead) if is_plain and lead else 0)


def _sources(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the tables of a SELECT. A subquery of versions stands for its table: earlier versions do not change later ones."""
    clause = select.args.get("from_") or select.args.get("from")
    for source in (clause, *(select.args.get("joins") or ())):
        if source is not None:
            table = source.this
            if isinstance(table, exp.Subquery) and not _is_versions(table.this):
                continue
            yield table


def _is_versions(select: exp.Expr) -> bool:
    return isinstance(select, exp.Select) and select.args.get("where") is None and any(select.find_all(exp.Lead))


def _back(condition: exp.Expr, alias: str) -> int | None:
    """Return the length by which rows may be older than tau under a condition; None: it does not bound them."""
    match condition:
        case exp.Paren():
            return _back(condition.this, alias)
        case exp.Or():
            lengths = [_back(part, alias) for part in condition.flatten()]
            return None if None in lengths else max(length for length in lengths if length is not None)
        case exp.And():
            return min(
                (length for part in condition.flatten() if (length := _back(part, alias)) is not None), default=None
            )
        case exp.LT() | exp.LTE() if _is_placeholder(condition.this, TAU):
            ticks = _ticks_after(condition.expression, alias)
            return None if ticks is None else ticks + isinstance(condition, exp.LTE)
    return None


def _lead(condition: exp.Expr, alias: str) -> int | None:
    """Return the length by which rows must be older than t under a condition; None: it does not bound them."""
    match condition:
        case exp.LT() | exp.LTE() if _is_placeholder(condition.expression, T):
            return _ticks_after(condition.this, alias)
    return None


def _ticks_after(instant: exp.Expr, alias: str) -> int | None:
    """Return k of `alias.ts + k`; None: the instant has another form."""
    match instant:
        case exp.Column() if instant.name == TS and instant.table == alias:
            return 0
        case exp.Add() | exp.Sub() if _ticks_after(instant.this, alias) == 0:
            ticks = ticks_of(instant.expression)
            return ticks if ticks is None or isinstance(instant, exp.Add) else -ticks
    return None


def _is_placeholder(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Placeholder) and node.name == name


def _wider(first: Reach, second: Reach) -> Reach:
    back = None if first.back is None or second.back is None else max(first.back, second.back)
    return Reach(back, min(first.lead, second.lead))


def _moment(name: str, before: int) -> str:
    if not before:
        return name
    return f"{name} {'-' if before > 0 else '+'} {abs(before) / 1_000_000:.6f}".rstrip("0").rstrip(".") + " s"
