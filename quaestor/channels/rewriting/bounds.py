"""Bounds of a run in a tree: which tables need their new records only (T13)."""

from __future__ import annotations

from sqlglot import exp

from quaestor.channels.rewriting.reading import CURRENT, IS_NEW, PREVIOUS, sources
from quaestor.continuous.executors.binding import conjuncts
from quaestor.tables.schema import TS


def needs_new_only(table: exp.Table) -> bool:
    """Whether every result needs a new record of this table: the SELECT's conditions imply `is_new`.

    The bound `previous` is then pushed into the scan. In all other cases it travels with each record.
    """
    select, alias = table.parent_select, table.alias_or_name
    if select is None:
        return False
    conditions = certain_conditions(select)
    for join in select.args.get("joins") or []:
        if join.side == "LEFT" and join.this is table and (on := join.args.get("on")) is not None:
            conditions.append(on)
    return any(source is table for source in sources(select)) and any(implies_new(part, alias) for part in conditions)


def with_bounds(tree: exp.Expr) -> exp.Expr:
    """Return a tree in which `is_new` is a comparison with the bound that travels with the record."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and node.name == IS_NEW:
            instant = node.expressions[0]
            previous = exp.column(PREVIOUS, table=instant.table)
            return exp.paren(exp.LT(this=previous, expression=instant.copy()))
        return node

    return tree.transform(replaced)


def certain_conditions(select: exp.Select) -> list[exp.Expr]:
    """Return conditions that are true for every row of a SELECT: parts of WHERE, and of joins without a side."""
    where = select.args.get("where")
    whole = [] if where is None else [where.this]
    whole += [
        on for join in select.args.get("joins") or [] if not join.side and (on := join.args.get("on")) is not None
    ]
    return [part for condition in whole for part in conjuncts(condition)]


def implies_new(condition: exp.Expr, alias: str) -> bool:
    """Whether a condition is true only for new records of a table."""
    match condition:
        case exp.Paren():
            return implies_new(condition.this, alias)
        case exp.And():
            return implies_new(condition.this, alias) or implies_new(condition.expression, alias)
        case exp.Or():
            return implies_new(condition.this, alias) and implies_new(condition.expression, alias)
        case exp.Anonymous():
            return condition.name == IS_NEW and condition.expressions[0].table == alias
        case exp.GT() | exp.LT():
            later, earlier = (
                (condition.this, condition.expression)
                if isinstance(condition, exp.GT)
                else (condition.expression, condition.this)
            )
            return _is(later, TS, alias) and (_is(earlier, PREVIOUS, alias) or _is(earlier, CURRENT, alias))
    return False


def _is(node: exp.Expr, name: str, alias: str) -> bool:
    return isinstance(node, exp.Column) and node.name == name and node.table == alias
