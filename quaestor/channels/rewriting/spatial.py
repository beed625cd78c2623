"""Spatial predicates: the exact test, and the equality of cells that finds candidates (V2).

A cell is a little larger than the radius, so two near points lie in the same or in adjacent cells, whatever is rounded. One of
the sides is repeated for all adjacent cells. On the sphere the cells are cubes around the points of the unit sphere, so neither
the poles nor the date line are special.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

from sqlglot import exp

from quaestor.channels.rewriting.reading import sources
from quaestor.channels.rewriting.spatial_functions import SPATIAL
from quaestor.continuous.sql.refusals import refusal

EARTH_M: Final = 6_371_008.8
"""Mean radius of the earth, in metres."""
_SLACK: Final = 1.001
_SMALLEST_CELL: Final = 1e-9


class NearPair(NamedTuple):
    """Condition that two points of two tables are near each other.

    left, right: expressions of the points; each reads one table.
    radius: in the plane's unit, or in metres.
    """

    left: exp.Expr
    right: exp.Expr
    radius: float
    sphere: bool

    @property
    def tables(self) -> tuple[str, str]:
        """Aliases of both tables."""
        return _table_of(self.left), _table_of(self.right)


def check_calls(tree: exp.Expr) -> None:
    """Refuse calls with a wrong number of arguments. Raises QueryRefusedError."""
    for call in tree.find_all(exp.Anonymous):
        wanted = SPATIAL.get(call.name.lower())
        if wanted is not None and len(call.expressions) != wanted:
            raise refusal(
                call,
                f"{call.name} has {len(call.expressions)} arguments",
                f"write {wanted} arguments: two points first",
            )


def near_pairs(select: exp.Select) -> Iterator[NearPair]:
    """Yield the pairs of tables of one SELECT whose points must be near, within a constant radius."""
    where = select.args.get("where")
    conditions = [] if where is None else [where.this]
    conditions += [
        join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on") is not None and not join.side
    ]
    inner = not any(join.side for join in select.args.get("joins") or [])
    aliases = {source.alias_or_name for source in sources(select) if isinstance(source, exp.Table)}
    for condition in conditions if inner else ():
        for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
            pair = _pair(part.unnest())
            if pair is not None and set(pair.tables) <= aliases and len(set(pair.tables)) == len(pair.tables):
                yield pair


def with_cells(select: exp.Select, pair: NearPair, repeated: str, number: int) -> None:
    """Add the equality of cells to a SELECT.

    repeated: alias of the side that is repeated for all adjacent cells.
    number: of the pair in the query, for names.
    """
    first, second = (pair.left, pair.right) if _table_of(pair.left) == repeated else (pair.right, pair.left)
    table = next(source for source in sources(select) if source.alias_or_name == repeated)
    own, other = _cells(first, pair), _cells(second, pair)
    steps = [f"step{axis}" for axis in range(len(own))]
    values = exp.values(list(product((-1, 0, 1), repeat=len(own))), alias="_steps", columns=steps)
    columns = [
        exp.alias_(exp.Add(this=exp.paren(cell), expression=exp.column(step, table="_steps")), f"_cell{number}_{axis}")
        for axis, (cell, step) in enumerate(zip(own, steps, strict=True))
    ]
    inner = (
        exp.Select()
        .select(exp.Column(this=exp.Star(), table=exp.to_identifier(repeated)), *columns)
        .from_(table.copy())
        .join(values, join_type="cross")
    )
    table.replace(inner.subquery(repeated))
    for axis, cell in enumerate(other):
        equal = exp.EQ(this=exp.column(f"_cell{number}_{axis}", table=repeated), expression=cell)
        select.where(equal, copy=False)


def with_exact_tests(tree: exp.Expr) -> exp.Expr:
    """Return a tree whose spatial functions are arithmetic."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Anonymous) or node.name.lower() not in SPATIAL:
            return node
        first, second, *radius = node.expressions
        match node.name.lower():
            case "distance":
                return exp.Sqrt(this=_square(first, second))
            case "distance_sphere":
                return exp.Mul(
                    this=_number(2 * EARTH_M),
                    expression=exp.Anonymous(this="asin", expressions=[exp.Sqrt(this=_haversine(first, second))]),
                )
            case "near":
                return exp.paren(exp.LTE(this=_square(first, second), expression=_squared(radius[0])))
            case _:
                return exp.paren(_near_on_sphere(first, second, radius[0]))

    return tree.transform(replaced)


def _pair(node: exp.Expr) -> NearPair | None:
    if not isinstance(node, exp.Anonymous) or node.name.lower() not in ("near", "near_sphere"):
        return None
    first, second, radius = node.expressions
    if not isinstance(radius, exp.Literal) or radius.is_string:
        return None
    length, sphere = float(radius.this), node.name.lower() == "near_sphere"
    least = _SMALLEST_CELL * (EARTH_M if sphere else 1)
    if length < least or (sphere and length > EARTH_M) or not (_table_of(first) and _table_of(second)):
        return None
    return NearPair(first, second, length, sphere)


def _table_of(point: exp.Expr) -> str:
    """Return the only table that an expression reads; empty: there are none or several."""
    tables = {column.table for column in point.find_all(exp.Column)}
    return tables.pop() if len(tables) == 1 else ""


def _cells(point: exp.Expr, pair: NearPair) -> list[exp.Expr]:
    if not pair.sphere:
        return [_cell(_part(point, axis), pair.radius * _SLACK) for axis in "xy"]
    chord = 2 * math.sin(pair.radius / (2 * EARTH_M)) * _SLACK
    longitude, latitude = _radians(_part(point, "x")), _radians(_part(point, "y"))
    flat = exp.Cos(this=latitude)
    axes = (
        exp.Mul(this=flat, expression=exp.Cos(this=longitude)),
        exp.Mul(this=flat.copy(), expression=exp.Sin(this=longitude.copy())),
        exp.Sin(this=latitude.copy()),
    )
    return [_cell(exp.paren(axis), chord) for axis in axes]


def _cell(value: exp.Expr, size: float) -> exp.Expr:
    return exp.Floor(this=exp.Div(this=value, expression=_number(size)))


def _part(point: exp.Expr, axis: str) -> exp.Expr:
    return exp.Dot(this=point.copy(), expression=exp.to_identifier(axis))


def _difference(first: exp.Expr, second: exp.Expr, axis: str) -> exp.Expr:
    return exp.paren(exp.Sub(this=_part(first, axis), expression=_part(second, axis)))


def _squared(node: exp.Expr) -> exp.Expr:
    number = exp.cast(node.copy(), "DOUBLE")
    return exp.Mul(this=number, expression=number.copy())


def _square(first: exp.Expr, second: exp.Expr) -> exp.Expr:
    parts = [_difference(first, second, axis) for axis in "xy"]
    left, right = (exp.Mul(this=part, expression=part.copy()) for part in parts)
    return exp.paren(exp.Add(this=left, expression=right))


def _haversine(first: exp.Expr, second: exp.Expr) -> exp.Expr:
    """Return the square of half the chord between two points of the unit sphere."""

    def half_sine(axis: str) -> exp.Expr:
        half = exp.Div(this=_radians(_difference(first, second, axis)), expression=_number(2.0))
        sine = exp.Sin(this=half)
        return exp.Mul(this=sine, expression=sine.copy())

    cosines = exp.Mul(
        this=exp.Cos(this=_radians(_part(first, "y"))), expression=exp.Cos(this=_radians(_part(second, "y")))
    )
    across = exp.Mul(this=cosines, expression=half_sine("x"))
    return exp.paren(exp.Add(this=half_sine("y"), expression=across))


def _near_on_sphere(first: exp.Expr, second: exp.Expr, radius: exp.Expr) -> exp.Expr:
    angle = exp.Div(this=exp.cast(radius.copy(), "DOUBLE"), expression=_number(2 * EARTH_M))
    sine = exp.Sin(this=exp.Least(this=angle, expressions=[_number(math.pi / 2)], ignore_nulls=True))
    return exp.LTE(this=_haversine(first, second), expression=exp.Mul(this=sine, expression=sine.copy()))


def _radians(node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="radians", expressions=[node])


def _number(value: float) -> exp.Expr:
    return exp.cast(exp.Literal.number(repr(value)), "DOUBLE")
