"""Shapes of the plane: `$box`, `$center`, `$polygon`. Degrees are plain numbers here, and only points lie in shapes.

The borders belong to the shapes. Comparisons round exactly like mongod's, because queries for points on a border are usual.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from quaestor.errors import MalformedQueryError
from quaestor.query.geo.coordinates import Point, holds_members, members, number, point

Inside = Callable[[Point], bool]
Bounds = tuple[float, float, float, float]
"""Least x, least y, greatest x, greatest y."""


def box(operand: Any) -> tuple[Inside, Bounds]:
    """Parse `$box: [corner, opposite corner]`."""
    corners = _members(operand, "$box")
    if len(corners) < 2:
        raise MalformedQueryError(f"$box needs two corners, not {operand!r}")
    a, b = (point(corner, more=False) for corner in corners[:2])
    left, right, low, high = min(a.x, b.x), max(a.x, b.x), min(a.y, b.y), max(a.y, b.y)
    return lambda place: left <= place.x <= right and low <= place.y <= high, (left, low, right, high)


def center(operand: Any) -> tuple[Inside, Bounds]:
    """Parse `$center: [[x, y], radius]`."""
    middle, radius = center_and_radius(operand, "$center")
    x, y = middle.x, middle.y
    slack = 1e-9 * (abs(x) + abs(y) + radius)
    reach = radius + slack

    def inside(place: Point) -> bool:
        return beyond(middle, place, radius) <= 0

    return inside, (x - reach, y - reach, x + reach, y + reach)


def center_and_radius(operand: Any, what: str) -> tuple[Point, float]:
    """Parse the operand of `$center` and `$centerSphere`."""
    parts = _members(operand, what)
    if not parts:
        raise MalformedQueryError(f"{what} needs a centre and a radius, not {operand!r}")
    middle = point(parts[0], more=False)
    radius = number(parts[1]) if len(parts) > 1 else None
    if radius is None or not radius >= 0:
        raise MalformedQueryError(f"{what} needs a radius that is a number and not negative, not {operand!r}")
    if len(parts) > 2:
        raise MalformedQueryError(f"{what} needs a centre and a radius and nothing else, not {operand!r}")
    return middle, radius


def beyond(a: Point, b: Point, radius: float) -> float:
    """Return by how much the distance of two points exceeds the radius; at most 0 within it.

    Along an axis the sum is compared, not the difference: 51.9999 + 0.0001 is 52.0, but 52.0 - 51.9999 is more than 0.0001.
    """
    dx, dy = b.x - a.x, b.y - a.y
    if dx == 0:
        return max(a.y, b.y) - (min(a.y, b.y) + radius)
    if dy == 0:
        return max(a.x, b.x) - (min(a.x, b.x) + radius)
    return distance(a, b) - radius


def distance(a: Point, b: Point) -> float:
    """Return the distance of two points in the plane, in the units of the coordinates."""
    dx, dy = b.x - a.x, b.y - a.y
    return math.sqrt(dx * dx + dy * dy)


def polygon(operand: Any) -> tuple[Inside, Bounds]:
    """Parse `$polygon: [[x, y], ...]`, closed by itself; parity decides where it overlaps itself. O(corners)."""
    corners = [point(corner, more=False) for corner in _members(operand, "$polygon")]
    if len(corners) < 3:
        raise MalformedQueryError(f"$polygon needs at least three corners, not {operand!r}")
    edges = [(a.x, a.y, b.x, b.y) for a, b in zip(corners, [*corners[1:], corners[0]], strict=True)]

    def inside(place: Point) -> bool:
        return _in_polygon(place.x, place.y, edges)

    xs, ys = [corner.x for corner in corners], [corner.y for corner in corners]
    return inside, (min(xs), min(ys), max(xs), max(ys))


def _in_polygon(x: float, y: float, edges: list[tuple[float, float, float, float]]) -> bool:
    crossings = 0
    for ax, ay, bx, by in edges:
        if (x == ax and y == ay) or (x == bx and y == by):
            return True
        if ay == by:
            if y == ay and min(ax, bx) <= x <= max(ax, bx):
                return True
        elif min(ay, by) < y <= max(ay, by) and x <= max(ax, bx):
            if ax == bx:
                if x == ax:
                    return True
                crossings += 1
            elif x <= (y - ay) * (bx - ax) / (by - ay) + ax:
                crossings += 1
    return crossings % 2 == 1


def _members(operand: Any, what: str) -> list[Any]:
    if not holds_members(operand):
        raise MalformedQueryError(f"{what} needs an array, not {operand!r}")
    return members(operand)
