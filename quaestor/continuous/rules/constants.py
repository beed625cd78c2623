"""Constants of a compiled query, taken out of its plan: queries of users that differ in constants only have equal plans.

A constant may leave the plan only where a column of the same type compares equally. Other constants stay in the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from quaestor.continuous.sql.intervals import interval, number_of, ticks_of
from quaestor.tables.schema import Schema, Type

CONSTANTS: Final = "_constants"
"""Table of constants: a row for each query."""
_ALIAS: Final = "_c"
_MOST_DIGITS: Final = 15
"""Most digits of a number that has the same value as DOUBLE."""
_COMPARISONS: Final = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Like,
    exp.ILike,
)


@dataclass(frozen=True, slots=True)
class Constant:
    """Constant of a query.

    type: of its column in the table of constants.
    """

    value: int | float | str
    type: Type


@dataclass(frozen=True, slots=True)
class Separated:
    """Plan and the constants taken out of it.

    plan: constants are columns `c0`, `c1`, ... of the table of constants, which is not yet in FROM; tables have the aliases
        `t0`, `t1`, ...
    """

    plan: exp.Query
    constants: tuple[Constant, ...]


def constant_column(name: str) -> exp.Column:
    """Return a column of the table of constants in a plan."""
    return exp.column(name, table=_ALIAS)


def constants_table() -> exp.Expr:
    """Return the table of constants, as a plan names it in FROM."""
    return exp.alias_(exp.table_(CONSTANTS), _ALIAS, table=True)


def separated(expression: exp.Query, catalogue: Mapping[str, Schema]) -> Separated:
    """Return the plan of an expression without its constants. Names of tables and the order of conditions do not matter."""
    plan = _sorted(_renamed(expression.copy()))
    schemas = _schemas(plan, catalogue)
    constants: list[Constant] = []

    def taken(constant: Constant) -> exp.Column:
        constants.append(constant)
        return constant_column(f"c{len(constants) - 1}")

    # Subqueries in FROM cannot name the table of constants.
    for node in list(plan.walk(bfs=False, prune=lambda node: isinstance(node, exp.From | exp.Join))):
        if isinstance(node, exp.Interval) and (ticks := ticks_of(node)) is not None:
            node.replace(exp.Mul(this=taken(Constant(ticks, Type.BIGINT)), expression=interval(1)))
        elif isinstance(node, exp.Cast) and node.to.this == exp.DType.TIMESTAMP and _is_text(node.this):
            node.this.replace(taken(Constant(node.this.name, Type.TEXT)))
        else:
            for literal, kind in _compared(node, schemas):
                constant = constant_of(literal, kind)
                if constant is None:
                    continue
                column: exp.Expr = taken(constant)
                literal.replace(exp.cast(column, "TIMESTAMP") if kind is Type.TIMESTAMP else column)
    return Separated(plan, tuple(constants))


def _renamed(plan: exp.Query) -> exp.Query:
    """Return a plan whose tables have the aliases `t0`, `t1`, ... in the order of their first use."""
    names: dict[str, str] = {}
    sources = [node for node in plan.dfs() if isinstance(node, exp.TableAlias) and node.this is not None]
    for source in sources:
        names.setdefault(source.name, f"t{len(names)}")
    in_columns = {column.table for column in plan.find_all(exp.Column)}
    for table in list(plan.find_all(exp.Table)):
        if not table.alias and isinstance(table.parent, exp.From | exp.Join) and table.name in in_columns:
            names.setdefault(table.name, f"t{len(names)}")
            table.set("alias", exp.TableAlias(this=exp.to_identifier(names[table.name])))
    for source in sources:
        source.set("this", exp.to_identifier(names[source.name]))
    for column in plan.find_all(exp.Column):
        if column.table:
            column.set("table", exp.to_identifier(names[column.table]))
    return plan


def _sorted(plan: exp.Query) -> exp.Query:
    """Return a plan whose conditions are in the order of their texts without literals."""

    def text(condition: exp.Expr) -> str:
        return condition.transform(lambda node: exp.Placeholder() if isinstance(node, exp.Literal) else node).sql()

    for comparison in plan.find_all(exp.EQ, exp.NEQ):
        left, right = comparison.this, comparison.expression
        if isinstance(right, exp.Column) and not isinstance(left, exp.Column):
            comparison.set("this", right)
            comparison.set("expression", left)
    for where in list(plan.find_all(exp.Where)):
        if isinstance(where.this, exp.And):
            parts = sorted((part.copy() for part in where.this.flatten()), key=text)
            where.set("this", exp.and_(*parts, copy=False))
    return plan


def _schemas(plan: exp.Query, catalogue: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return the schema of each alias that stands for a table, or for the versions of a table."""
    schemas = {}
    for table in plan.find_all(exp.Table):
        source: exp.Expr = table
        around = table.find_ancestor(exp.Subquery)
        if around is not None and not table.alias and around.alias:
            source = around
        if table.name in catalogue:
            schemas[source.alias_or_name] = catalogue[table.name]
    return schemas


def _compared(node: exp.Expr, schemas: Mapping[str, Schema]) -> Iterator[tuple[exp.Expr, Type]]:
    """Yield the operands that a node compares with a column, each with the type of the column."""
    match node:
        case exp.In():
            sides = [(node.this, value) for value in node.expressions]
        case exp.Between():
            sides = [(node.this, node.args["low"]), (node.this, node.args["high"])]
        case exp.Binary() if isinstance(node, _COMPARISONS):
            sides = [(node.this, node.expression), (node.expression, node.this)]
        case _:
            return
    for column, value in sides:
        if isinstance(column, exp.Column) and column.table in schemas:
            kind = schemas[column.table].type_of(column.name)
            if kind is not None:
                yield value, kind


def constant_of(literal: exp.Expr, kind: Type) -> Constant | None:
    """Return the constant of an operand; None: it is no literal, or has another type than the column.

    kind: type of the column.
    """
    if _is_text(literal):
        return Constant(literal.name, Type.TEXT) if kind in (Type.TEXT, Type.JSON, Type.TIMESTAMP) else None
    number = number_of(literal)
    if number is None or kind not in (Type.BIGINT, Type.DOUBLE):
        return None
    digits = literal.sql().lstrip("-")
    if len(digits) > _MOST_DIGITS or not digits.replace(".", "", 1).isdigit():
        return None
    if kind is Type.DOUBLE:
        return Constant(float(number), Type.DOUBLE)
    return Constant(int(number), Type.BIGINT) if digits.isdigit() else None


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string
