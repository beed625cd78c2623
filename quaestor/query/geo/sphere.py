"""Geometries on the sphere: whether one contains, crosses or approaches another. The tests are S2's.

A point counts as a cell of about a centimetre, so that borders belong to the regions that they enclose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Protocol

from quaestor.query.geo.coordinates import EARTH_RADIUS_M, Point, angle
from quaestor.query.geo.geometry import Geometry
from quaestor.query.optional_parts import s2

_COVERED: Final = math.radians(2e-10)
"""Length in radians that a line may lose to rounding when it is clipped to a polygon that contains it."""


class Region(Protocol):
    """A region of the sphere, for `$geoWithin`."""

    def has_point(self, place: Point) -> bool: ...

    def has_line(self, line: Any) -> bool: ...

    def has_polygon(self, polygon: Any) -> bool: ...


class Polygons:
    """A region of one or more S2Polygons; a contained geometry must lie in one of them."""

    __slots__ = ("polygons",)

    def __init__(self, polygons: tuple[Any, ...]) -> None:
        self.polygons = polygons

    def has_point(self, place: Point) -> bool:
        cell = place.cell
        return any(polygon.MayIntersect(cell) for polygon in self.polygons)

    def has_line(self, line: Any) -> bool:
        return any(_covers(polygon, line) for polygon in self.polygons)

    def has_polygon(self, polygon: Any) -> bool:
        return any(own.Contains(polygon) for own in self.polygons)


class Cap:
    """The region within a distance of a place: `$centerSphere`.

    radius: radians.
    """

    __slots__ = ("cap", "center", "radius")

    def __init__(self, center: Point, radius: float) -> None:
        self.center = center.vertex
        self.radius = min(radius, math.pi)
        self.cap = s2.S2Cap(self.center, s2.S1Angle.Radians(self.radius))

    def has_point(self, place: Point) -> bool:
        return bool(self.cap.MayIntersect(place.cell))

    def has_line(self, line: Any) -> bool:
        return self._has(line.vertex(position) for position in range(line.num_vertices()))

    def has_polygon(self, polygon: Any) -> bool:
        loops = (polygon.loop(position) for position in range(polygon.num_loops()))
        return self._has(loop.vertex(position) for loop in loops for position in range(loop.num_vertices()))

    def _has(self, vertices: Any) -> bool:
        # mongod uses a margin of 3.14 metres (or less, if less is left outside), and tests only the vertices.
        if self.radius >= math.pi:
            return True
        margin = min(EARTH_RADIUS_M * (math.pi - self.radius), math.pi)
        return all(EARTH_RADIUS_M * (self.radius - angle(self.center, vertex)) >= margin for vertex in vertices)


class Big:
    """A polygon that may be larger than half of the sphere: the part to the left of its border."""

    __slots__ = ("border", "complement", "line", "loop", "smaller")

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.complement = not loop.IsNormalized()
        border = s2.S2Loop()
        corners = [loop.vertex(position) for position in range(loop.num_vertices())]
        border.Init(corners)
        border.Normalize()
        self.smaller = s2.S2Polygon()
        self.smaller.InitNested([border])
        self.line = s2.S2Polyline()
        self.line.InitFromS2Points([*corners, corners[0]])

    def has_point(self, place: Point) -> bool:
        return bool(self.loop.MayIntersect(place.cell))

    def has_line(self, line: Any) -> bool:
        if self.complement:
            return not self.smaller.IntersectWithPolyline(line)
        return _covers(self.smaller, line)

    def has_polygon(self, polygon: Any) -> bool:
        if self.complement:
            return not self.smaller.Intersects(polygon)
        return bool(self.smaller.Contains(polygon))

    def crosses_line(self, line: Any) -> bool:
        return bool(self.line.Intersects(line) or self.loop.Contains(line.vertex(0)))

    def crosses_polygon(self, polygon: Any) -> bool:
        return bool(self.loop.Intersects(polygon.loop(0)) if self.complement else self.smaller.Intersects(polygon))


def contains(region: Region, geometry: Geometry) -> bool:
    """Whether every part of the geometry lies in the region."""
    return (
        all(region.has_point(point) for point in geometry.points)
        and all(region.has_line(line) for line in geometry.lines)
        and all(region.has_polygon(polygon) for polygon in geometry.polygons)
    )


def intersection(searched: Geometry) -> Callable[[Geometry], bool]:
    """Return a function that decides whether a geometry shares a place with the given one. O(parts x parts)."""
    big = None if searched.big is None else Big(searched.big)

    def intersects(geometry: Geometry) -> bool:
        for point in geometry.points:
            if _touches(searched, big, point):
                return True
        for line in geometry.lines:
            if _line_touches(searched, big, line):
                return True
        return any(_polygon_touches(searched, big, polygon) for polygon in geometry.polygons)

    return intersects


def _touches(searched: Geometry, big: Big | None, point: Point) -> bool:
    cell = point.cell
    return (
        any(other.cell.MayIntersect(cell) for other in searched.points)
        or any(line.MayIntersect(cell) for line in searched.lines)
        or any(polygon.MayIntersect(cell) for polygon in searched.polygons)
        or (big is not None and big.has_point(point))
    )


def _line_touches(searched: Geometry, big: Big | None, line: Any) -> bool:
    return (
        any(line.MayIntersect(point.cell) for point in searched.points)
        or any(other.Intersects(line) for other in searched.lines)
        or any(bool(polygon.IntersectWithPolyline(line)) for polygon in searched.polygons)
        or (big is not None and big.crosses_line(line))
    )


def _polygon_touches(searched: Geometry, big: Big | None, polygon: Any) -> bool:
    return (
        any(polygon.MayIntersect(point.cell) for point in searched.points)
        or any(bool(polygon.IntersectWithPolyline(line)) for line in searched.lines)
        or any(other.Intersects(polygon) for other in searched.polygons)
        or (big is not None and big.crosses_polygon(polygon))
    )


def distance_m(place: Point, geometry: Geometry) -> float:
    """Return the distance of the nearest part of the geometry, in metres; 0 inside of a polygon."""
    vertex = place.vertex
    angles = [angle(vertex, point.vertex) for point in geometry.points]
    angles.extend(angle(vertex, line.Project(vertex)[0]) for line in geometry.lines)
    angles.extend(angle(vertex, polygon.Project(vertex)) for polygon in geometry.polygons)
    return min(angles) * EARTH_RADIUS_M


def _covers(polygon: Any, line: Any) -> bool:
    pieces = polygon.IntersectWithPolyline(line)
    return len(pieces) == 1 and line.GetLength().radians() - pieces[0].GetLength().radians() <= _COVERED
