"""`$near`, `$nearSphere` and `$geoNear`: records within a distance, and their distances. Manual: $near, $nearSphere.

mongod evaluates them only with a geospatial index, and orders by distance unless the query has a sort of its own. The
distance of a record is that of the nearest geometry its path reaches. A GeoJSON point means metres on the sphere. A pair means
the plane for `$near`, and the sphere with distances in radians for `$nearSphere`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.first_use import FirstUse
from quaestor.query.ast import Conjunction, Negation, Node, Predicate
from quaestor.query.geo import planar
from quaestor.query.geo.bounds import Box, boxes_of_cap
from quaestor.query.geo.coordinates import EARTH_RADIUS_M, Point, holds_members, is_pair, members, number, point
from quaestor.query.geo.geojson import geometry as geojson
from quaestor.query.geo.geojson import stored
from quaestor.query.geo.geometry import Geometry
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.optional_parts import s2
from quaestor.query.paths import Matcher, as_document, is_array, reached

if TYPE_CHECKING:
    from quaestor.query.geo import sphere
else:
    sphere = FirstUse("quaestor.query.geo.sphere")

NAMES: Final = ("$near", "$nearSphere", "$geoNear")
_OPTIONS: Final = ("$minDistance", "$maxDistance", "$uniqueDocs")
_FARTHEST_M: Final = math.pi * EARTH_RADIUS_M


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Near:
    """The operand of a near predicate.

    low, high: both included; metres if `spherical`, else the units of the coordinates.
    boxes: as in `Area`.
    """

    center: Point
    spherical: bool
    low: float
    high: float

    @property
    def boxes(self) -> tuple[Box, ...] | None:
        if not math.isfinite(self.high) or (self.spherical and self.high >= _FARTHEST_M / 2):
            return None
        if self.spherical:
            angle = s2.S1Angle.Radians(self.high / EARTH_RADIUS_M * (1 + 1e-9))
            return boxes_of_cap(s2.S2Cap(self.center.vertex, angle))
        x, y = self.center.x, self.center.y
        reach = self.high + 1e-9 * (abs(x) + abs(y) + self.high)
        return ((x - reach, y - reach, x + reach, y + reach),)

    def distance(self, geometry: Geometry) -> float | None:
        """Return the distance from the centre to the geometry; None if it has no place in this plane or sphere."""
        if geometry.big is not None:
            return None
        if self.spherical:
            return sphere.distance_m(self.center, geometry) if geometry.on_sphere else None
        return planar.distance(self.center, geometry.points[0]) if geometry.single else None


def distance_function(predicate: Predicate) -> Callable[[Mapping[str, Any]], float | None]:
    """Return a function from a record to its distance from the centre of a near predicate; None: no place."""
    near: Near = predicate.operand
    path = predicate.path

    def distance(document: Mapping[str, Any]) -> float | None:
        distances = [
            away
            for value in _places(document, path)
            if (geometry := stored(value)) is not None and (away := near.distance(geometry)) is not None
        ]
        return min(distances, default=None)

    return distance


def _places(document: Mapping[str, Any], path: str) -> Iterator[Any]:
    """Iterate over the values that may be geometries: the last array on the path itself, or else its elements."""
    for value in reached(document, path, whole_arrays=True):
        if is_array(value) and stored(value) is None:
            yield from value
        else:
            yield value


def near_of(root: Node) -> Predicate | None:
    """Return the near predicate of a normalised filter, which orders its result, if it has one.

    Raises MalformedQueryError if it is part of $or, $nor, $not or $elemMatch.
    """
    members_ = root.members if isinstance(root, Conjunction) else (root,)
    direct = [member for member in members_ if isinstance(member, Predicate) and member.operator == "$near"]
    if len(direct) != sum(1 for _ in _all(root)):
        raise MalformedQueryError(
            "$near and $nearSphere must stand at the top of the filter, not in $or, $not or the like"
        )
    return direct[0] if direct else None


def require_one(parsed: Node) -> None:
    """Refuse a second near predicate, and a negated one, before equal parts are merged: raises MalformedQueryError."""
    if sum(1 for _ in _all(parsed)) > 1:
        raise MalformedQueryError("a filter can hold only one $near or $nearSphere")
    if any(True for negation in _negations(parsed) for _ in _all(negation)):
        raise MalformedQueryError("$near and $nearSphere cannot stand in $not or $nor")


def _negations(node: Any) -> Iterator[Negation]:
    if isinstance(node, Negation):
        yield node
    for member in getattr(node, "members", ()):
        yield from _negations(member)


def _all(node: Any) -> Iterator[Predicate]:
    if isinstance(node, Predicate):
        if node.operator == "$near":
            yield node
        elif node.operator == "$elemMatch":
            yield from _all(node.operand)
    elif isinstance(node, Negation):
        yield from _all(node.member)
    else:
        for member in getattr(node, "members", ()):
            yield from _all(member)


def _parse(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
    name = next(iter(siblings))
    if name not in NAMES:
        raise MalformedQueryError(f"$near of {path!r} must come first")
    if sum(key in NAMES for key in siblings) > 1:
        raise UnsupportedQueryError(f"$near of {path!r} beside another $near, of which one is ignored")
    if not holds_members(operand):
        raise MalformedQueryError(f"{name} of {path!r} needs a point or a document, not {operand!r}")
    s2.require()
    near = _pair(name, operand, siblings)
    if near is None:
        if len(siblings) > 1:
            raise MalformedQueryError(f"{name} of {path!r} holds its distances beside $geometry, nowhere else")
        near = _geojson(name, operand)
    return Predicate(path, "$near", near)


def _pair(name: str, operand: Any, siblings: Mapping[str, Any]) -> Near | None:
    """Parse `{$near: [x, y], $maxDistance: d}`, `{$near: [x, y, d]}` or `{$near: {type: "Point", ...}, $maxDistance: d}`."""
    limits = {"$minDistance": 0.0, "$maxDistance": math.inf}
    place, on_sphere, inline = _center(operand)
    if place is None:
        return None
    if inline is not None:
        limits["$maxDistance"] = _limit("$maxDistance", inline)
    for key, value in siblings.items():
        if key in limits:
            limits[key] = _limit(key, value)
        elif key not in (*NAMES, *_OPTIONS):
            raise MalformedQueryError(f"{name} cannot stand beside {key!r}")
    spherical = on_sphere or name == "$nearSphere"
    if spherical and not place.on_sphere:
        raise MalformedQueryError(f"{name} needs longitude and latitude, not {operand!r}")
    unit = EARTH_RADIUS_M if spherical and not on_sphere else 1.0
    return Near(
        center=place, spherical=spherical, low=limits["$minDistance"] * unit, high=limits["$maxDistance"] * unit
    )


def _center(operand: Any) -> tuple[Point | None, bool, Any]:
    """Return the point, whether it is GeoJSON, and a distance given as the third number."""
    try:
        if not is_pair(operand):
            geometry = geojson(operand)
            return (geometry.points[0], True, None) if geometry.single else (None, False, None)
        parts = members(operand)
        if len(parts) == 3 and number(parts[2]) is not None:
            return point(parts[:2], more=False), False, parts[2]
        return point(operand, more=False), False, None
    except MalformedQueryError:
        return None, False, None


def _geojson(name: str, operand: Any) -> Near:
    """Parse `{$near: {$geometry: point, $minDistance: m, $maxDistance: m}}`."""
    limits = {"$minDistance": 0.0, "$maxDistance": math.inf}
    center: Point | None = None
    for key, value in as_document(operand).items():
        if key in limits:
            limits[key] = _limit(key, value)
            if not math.isfinite(limits[key]):
                raise MalformedQueryError(f"{key} of {name} must be finite")
        elif key != "$geometry":
            raise MalformedQueryError(f"{name} cannot hold {key!r}")
        elif holds_members(value):
            geometry = None if is_pair(value) else geojson(value)
            if geometry is None or not geometry.single:
                raise MalformedQueryError(f"{name} needs a GeoJSON point, not {value!r}")
            center = geometry.points[0]
    if center is None:
        raise MalformedQueryError(f"{name} needs a $geometry")
    return Near(center=center, spherical=True, low=limits["$minDistance"], high=limits["$maxDistance"])


def _limit(key: str, value: Any) -> float:
    limit = number(value)
    if limit is None or not limit >= 0:
        raise MalformedQueryError(f"{key} must be a number and not negative, not {value!r}")
    return limit


def _parse_option(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> None:
    """Check that $near comes before a distance; a distance alone has no meaning."""
    if next(iter(siblings)) not in NAMES:
        raise MalformedQueryError(f"a distance of {path!r} needs $near or $nearSphere before it")


def _matcher(compiler: Compiler, predicate: Predicate) -> Matcher:
    distance, low, high = distance_function(predicate), predicate.operand.low, predicate.operand.high

    def near(document: Mapping[str, Any]) -> bool:
        away = distance(document)
        return away is not None and low <= away <= high

    return near


def _identity(near: Near) -> Any:
    return [near.center.x, near.center.y, near.spherical, near.low, near.high]


OPERATORS: Final = {
    **{name: FieldOperator(parse=_parse, matcher=_matcher, identity=_identity) for name in NAMES},
    **{name: FieldOperator(parse=_parse_option) for name in _OPTIONS},
}
