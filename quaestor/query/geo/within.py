"""`$geoWithin` (and its old name `$within`) and `$geoIntersects`. Manual: Geospatial Query Operators.

A shape decides between plane and sphere. `$box`, `$center` and `$polygon` are of the plane and hold only points.
`$centerSphere` and `$geometry` are of the sphere, where pairs of numbers within the bounds are places too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.first_use import FirstUse
from quaestor.query.ast import Node, Predicate
from quaestor.query.geo import planar
from quaestor.query.geo.bounds import Box, boxes_of_cap, boxes_of_geometry, rectangle
from quaestor.query.geo.coordinates import holds_members, is_pair, point
from quaestor.query.geo.geojson import geometry as geojson
from quaestor.query.geo.geojson import stored
from quaestor.query.geo.geometry import Geometry
from quaestor.query.operators.contract import Compiler, FieldOperator, Level, Parser
from quaestor.query.optional_parts import s2
from quaestor.query.paths import Test, as_document, is_document

if TYPE_CHECKING:
    from quaestor.query.geo import sphere
else:
    sphere = FirstUse("quaestor.query.geo.sphere")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Area:
    """A shape of a query.

    matches: a function of a stored geometry.
    source: `{shape operator: operand}`, which identifies it.
    boxes: rectangles in degrees that hold everything it can match; None: unbounded.
    """

    source: dict[str, Any]
    matches: Callable[[Geometry], bool]
    boxes: tuple[Box, ...] | None


def _parse(within: bool, name: str) -> Callable[[Parser, str, Any, Mapping[str, Any], Level], Node]:
    read = _within if within else _intersects

    def parse(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> Node:
        if len(siblings) > 1:
            other = next(key for key in siblings if key != name)
            raise MalformedQueryError(f"{name} of {path!r} cannot stand beside {other!r}")
        if not is_document(operand):
            raise MalformedQueryError(f"{name} of {path!r} needs a document with a shape, not {operand!r}")
        shapes = [(key, value) for key, value in as_document(operand).items() if key != "$uniqueDocs"]
        if not shapes:
            raise MalformedQueryError(f"{name} of {path!r} has no shape")
        if len(shapes) > 1 and name == "$geoWithin":
            raise MalformedQueryError(f"{name} of {path!r} takes one shape only, not {operand!r}")
        s2.require()
        areas = [read(key, value) for key, value in shapes]
        return Predicate(path, "$geoWithin" if within else "$geoIntersects", areas[-1])

    return parse


def _within(shape: str, operand: Any) -> Area:
    source = {shape: operand}
    if shape in _PLANAR:
        inside, bounds = _PLANAR[shape](operand)
        return Area(
            source=source,
            matches=lambda geometry: geometry.single and inside(geometry.points[0]),
            boxes=(rectangle(*bounds),),
        )
    if shape == "$centerSphere":
        cap = _cap(operand)
        return Area(source=source, matches=_inside(cap), boxes=boxes_of_cap(cap.cap))
    searched = _geometry(shape, operand)
    if searched.big is not None:
        return Area(source=source, matches=_inside(sphere.Big(searched.big)), boxes=None)
    if not searched.polygons:
        raise MalformedQueryError(f"$geoWithin needs a shape that has an inside, not {operand!r}")
        # A geometry within a collection lies within one of its polygons: its points and lines hold nothing.
    area = Geometry(polygons=searched.polygons)
    return Area(source=source, matches=_inside(sphere.Polygons(searched.polygons)), boxes=boxes_of_geometry(area))


def _intersects(shape: str, operand: Any) -> Area:
    source = {shape: operand}
    if shape in _PLANAR:
        _PLANAR[shape](operand)
        raise MalformedQueryError(f"$geoIntersects cannot use {shape}: it is of the plane")
    if shape == "$centerSphere":
        _cap(operand)
        return Area(source=source, matches=lambda _: False, boxes=())
    searched = _geometry(shape, operand)
    if not searched.on_sphere:
        raise MalformedQueryError(f"$geoIntersects needs longitude and latitude, not {operand!r}")
    touches = sphere.intersection(searched)
    return Area(
        source=source,
        matches=lambda geometry: geometry.on_sphere and touches(geometry),
        boxes=None if searched.big is not None else boxes_of_geometry(searched),
    )


def _inside(region: sphere.Region) -> Callable[[Geometry], bool]:
    return lambda geometry: geometry.on_sphere and sphere.contains(region, geometry)


def _cap(operand: Any) -> sphere.Cap:
    middle, radius = planar.center_and_radius(operand, "$centerSphere")
    if not middle.on_sphere:
        raise MalformedQueryError(f"$centerSphere needs longitude and latitude, not {operand!r}")
    return sphere.Cap(middle, radius)


def _geometry(shape: str, operand: Any) -> Geometry:
    if shape != "$geometry" or not holds_members(operand):
        raise MalformedQueryError(f"unknown shape {shape!r} with {operand!r}")
    if is_pair(operand):
        return Geometry(points=(point(operand, more=False),), single=True)
    return geojson(operand)


_PLANAR: Final = {"$box": planar.box, "$center": planar.center, "$polygon": planar.polygon}


def _test(compiler: Compiler, predicate: Predicate) -> Test:
    matches = predicate.operand.matches

    def of_value(value: Any) -> bool:
        geometry = stored(value)
        return geometry is not None and geometry.big is None and matches(geometry)

    return of_value


def _identity(area: Area) -> Any:
    return area.source


OPERATORS: Final = {
    "$geoWithin": FieldOperator(parse=_parse(True, "$geoWithin"), test=_test, identity=_identity),
    "$within": FieldOperator(parse=_parse(True, "$within"), test=_test, identity=_identity),
    "$geoIntersects": FieldOperator(parse=_parse(False, "$geoIntersects"), test=_test, identity=_identity),
}
