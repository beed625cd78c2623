"""Reach of a run: the instants of each table that an expression over (tau, t] can need, read from its conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

from sqlglot import exp

from quaestor.continuous.rules.monotone import TAU
from quaestor.continuous.sql.bounds import distance, leasts
from quaestor.continuous.sql.current_time import T
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
    """Return the columns of a table that an expression names. SQL ignores upper and lower case."""
    used = {column.name.lower() for column in expression.find_all(exp.Column)}
    return [name for name in schema.names if name.lower() in used]


def _uses(expression: exp.Query) -> Iterator[tuple[str, Reach]]:
    """Yield each use of a table, with its reach in its SELECT."""
    for select in expression.find_all(exp.Select):
        conditions = list(_conditions(select))
        for source in _sources(select):
            table = source if isinstance(source, exp.Table) else source.find(exp.Table)
            if table is None:
                continue
            if isinstance(source, exp.Table) and isinstance(select.parent, exp.Subquery) and is_versions(select):
                continue  # its uses are those of the subquery's alias
            reach = _reach(conditions, exp.column(TS, table=source.alias_or_name).sql())
            # A later version ends an earlier one, so versions are read up to t.
            yield table.name, reach if isinstance(source, exp.Table) else Reach(reach.back)


def _conditions(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the conditions of a SELECT. Conditions of the SELECTs around an EXISTS also bound the rows inside."""
    where = select.args.get("where")
    if where is not None:
        yield from where.this.flatten() if isinstance(where.this, exp.And) else (where.this,)
    if isinstance(select.parent, exp.Exists):
        around = select.parent_select
        if around is not None and select.find_ancestor(exp.Where) is around.args.get("where"):
            yield from _conditions(around)


def _sources(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the tables of a SELECT. A subquery of versions stands for its table: earlier versions do not change later ones."""
    clause = select.args.get("from_") or select.args.get("from")
    for source in (clause, *(select.args.get("joins") or ())):
        if source is not None:
            table = source.this
            if isinstance(table, exp.Subquery) and not is_versions(table.this):
                continue
            yield table


def is_versions(select: exp.Expr) -> bool:
    """Whether a subquery gives each version of a table its end (R20)."""
    return isinstance(select, exp.Select) and select.args.get("where") is None and any(select.find_all(exp.Lead))


def _reach(conditions: Sequence[exp.Expr], name: str) -> Reach:
    """Return the reach of an instant under conditions. An OR that names tau is a case for each of its parts."""
    for condition in conditions:
        whole = condition.unnest()
        if isinstance(whole, exp.Or) and any(_is_placeholder(node, TAU) for node in whole.find_all(exp.Placeholder)):
            rest = [other for other in conditions if other is not condition]
            cases = [_reach([*rest, *_parts(part)], name) for part in whole.flatten()]
            return reduce(_wider, cases)
    known = [least for condition in conditions for least in leasts(condition.unnest())]
    back, lead = distance(known, TAU, name), distance(known, name, T)
    return Reach(None if back is None else back + 1, 0 if lead is None else max(0, -lead))


def _parts(condition: exp.Expr) -> list[exp.Expr]:
    whole = condition.unnest()
    return list(whole.flatten()) if isinstance(whole, exp.And) else [whole]


def _is_placeholder(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Placeholder) and node.name == name


def _wider(first: Reach, second: Reach) -> Reach:
    back = None if first.back is None or second.back is None else max(first.back, second.back)
    return Reach(back, min(first.lead, second.lead))


def _moment(name: str, before: int) -> str:
    if not before:
        return name
    return f"{name} {'-' if before > 0 else '+'} {abs(before) / 1_000_000:.6f}".rstrip("0").rstrip(".") + " s"
