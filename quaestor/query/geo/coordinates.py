"""Coordinates of a place: [x, y], {lng: x, lat: y} and the like, in the plane and on the sphere.

The first two members count, under any names. Any pair of finite numbers is a point of the plane; only pairs within 180 and 90
degrees are points of the sphere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from bson import Decimal128

from quaestor.errors import MalformedQueryError
from quaestor.query.optional_parts import s2
from quaestor.query.paths import as_document, is_array, is_document

EARTH_RADIUS_M: Final = 6_378_100.0
"""Radius of the Earth in mongod."""


class Point:
    """A pair of numbers.

    x: degrees of longitude, for a place on the sphere.
    y: degrees of latitude.
    """

    __slots__ = ("_cell", "_vertex", "x", "y")

    def __init__(self, x: float, y: float) -> None:
        self.x = x
        self.y = y
        self._vertex: Any = None
        self._cell: Any = None

    @property
    def on_sphere(self) -> bool:
        return abs(self.x) <= 180 and abs(self.y) <= 90

    @property
    def vertex(self) -> Any:
        """The S2Point. Only if `on_sphere`."""
        if self._vertex is None:
            self._vertex = s2.S2LatLng.FromDegrees(self.y, self.x).Normalized().ToPoint()
        return self._vertex

    @property
    def cell(self) -> Any:
        """The smallest S2Cell around the point, about a centimetre wide: a border within it still counts as touched."""
        if self._cell is None:
            self._cell = s2.S2Cell(self.vertex)
        return self._cell


def number(value: Any) -> float | None:
    """Return a BSON number as a double; None for everything else."""
    if isinstance(value, Decimal128):
        return float(value.to_decimal())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def holds_members(value: Any) -> bool:
    return is_array(value) or is_document(value)


def members(value: Any) -> list[Any]:
    """Return the values in an array or a document, in order: names do not matter in coordinates."""
    if is_array(value):
        return list(value)
    return list(as_document(value).values())


def is_pair(value: Any) -> bool:
    """Whether a value is read as coordinates rather than as GeoJSON: any array, a document that begins with a number."""
    if is_array(value):
        return True
    return isinstance(value, Mapping) and number(next(iter(value.values()), None)) is not None


def point(value: Any, *, more: bool) -> Point:
    """Return the point that a value describes.

    more: members after the second are ignored, as in stored data; otherwise they are an error.

    Raises MalformedQueryError if the value is no point.
    """
    if not holds_members(value):
        raise MalformedQueryError(f"a point must be an array or a document, not {value!r}")
    parts = members(value)
    pair = [number(part) for part in parts[:2]]
    if len(pair) < 2 or pair[0] is None or pair[1] is None:
        raise MalformedQueryError(f"a point must consist of two numbers, not {value!r}")
    if len(parts) > 2 and not more:
        raise MalformedQueryError(f"a point must consist of two numbers only, not {value!r}")
    x, y = pair[0], pair[1]
    if not (math.isfinite(x) and math.isfinite(y)):
        raise MalformedQueryError(f"the coordinates of a point must be finite, not {value!r}")
    return Point(x, y)


def point_on_sphere(value: Any, *, more: bool) -> Point:
    """Return the point that `point` reads, if it is within the bounds of longitude and latitude."""
    place = point(value, more=more)
    if not place.on_sphere:
        raise MalformedQueryError(f"longitude or latitude is out of bounds: {value!r}")
    return place


def angle(a: Any, b: Any) -> float:
    """Return the angle between two S2Points in radians, exact for small and large ones alike."""
    ax, ay, az, bx, by, bz = a.x(), a.y(), a.z(), b.x(), b.y(), b.z()
    cross = math.hypot(ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx)
    return math.atan2(cross, ax * bx + ay * by + az * bz)
