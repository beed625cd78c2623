"""GeoJSON, read and refused like mongod. Manual: GeoJSON Objects; RFC 7946 differs (no winding order by default).

Edges are geodesics. A ring stands for the smaller of the two parts into which it divides the sphere. In the reference system
with strict winding order it stands for the part on the left instead ("big polygon").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.bson_order import STRING, type_bracket
from quaestor.query.geo.coordinates import Point, is_pair, point, point_on_sphere
from quaestor.query.geo.geometry import Geometry, together
from quaestor.query.optional_parts import s2
from quaestor.query.paths import as_document, is_array, is_document

_COMMON: Final = frozenset({"urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"})
_STRICT: Final = "urn:x-mongodb:crs:strictwinding:EPSG:4326"
_COLLECTION: Final = "GeometryCollection"
_FEWEST_CORNERS: Final = 3


def stored(value: Any) -> Geometry | None:
    """Return the geometry in a record's field; None if mongod would find none. O(n log n) in its vertices."""
    if not (is_array(value) or is_document(value)):
        return None
    try:
        if is_pair(value):
            return Geometry(points=(point(value, more=True),), single=True)
        return geometry(value)
    except (MalformedQueryError, UnsupportedQueryError):
        return None


def geometry(value: Any) -> Geometry:
    """Return the geometry of a GeoJSON object. Raises MalformedQueryError where mongod refuses it."""
    document = as_document(value)
    kind = _text(document.get("type"))
    if kind == _COLLECTION:
        return _collection(document)
    read = None if kind is None else _KINDS.get(kind)
    if read is None:
        raise MalformedQueryError(f"unknown GeoJSON type {document.get('type')!r}")
    return read(document)


def _collection(document: Mapping[str, Any]) -> Geometry:
    parts = []
    for part in _array(document.get("geometries"), "the geometries of a GeometryCollection"):
        if not is_document(part):
            raise MalformedQueryError(f"the geometries of a GeometryCollection must be documents, not {part!r}")
        if _text(as_document(part).get("type")) == _COLLECTION:
            raise MalformedQueryError("a GeometryCollection cannot be nested in another")
        read = geometry(part)
        if read.big is not None:
            raise UnsupportedQueryError("a polygon with strict winding order in a GeometryCollection")
        parts.append(read)
    if not parts:
        raise MalformedQueryError("the geometries of a GeometryCollection must have at least one element")
    return together(parts)


def _point(document: Mapping[str, Any]) -> Geometry:
    _require_common(document)
    return Geometry(points=(point_on_sphere(document.get("coordinates"), more=True),), single=True)


def _points(document: Mapping[str, Any]) -> Geometry:
    _require_common(document)
    places = tuple(_coordinates(document.get("coordinates")))
    if not places:
        raise MalformedQueryError("the coordinates of a MultiPoint must have at least one element")
    return Geometry(points=places)


def _line(document: Mapping[str, Any]) -> Geometry:
    _require_common(document)
    return Geometry(lines=(_polyline(document.get("coordinates")),))


def _lines(document: Mapping[str, Any]) -> Geometry:
    _require_common(document)
    lines = tuple(_polyline(part) for part in _array(document.get("coordinates"), "the coordinates of MultiLineString"))
    if not lines:
        raise MalformedQueryError("the coordinates of a MultiLineString must have at least one element")
    return Geometry(lines=lines)


def _polygon(document: Mapping[str, Any]) -> Geometry:
    if _is_strict(document):
        rings = _array(document.get("coordinates"), "the coordinates of a polygon")
        if len(rings) != 1:
            raise MalformedQueryError("a polygon with strict winding order must have exactly one ring")
        return Geometry(big=_ring(rings[0]))
    return Geometry(polygons=(_rings(document.get("coordinates")),))


def _polygons(document: Mapping[str, Any]) -> Geometry:
    _require_common(document)
    polygons = tuple(_rings(part) for part in _array(document.get("coordinates"), "the coordinates of a MultiPolygon"))
    if not polygons:
        raise MalformedQueryError("the coordinates of a MultiPolygon must have at least one element")
    return Geometry(polygons=polygons)


_KINDS: Final[dict[str, Callable[[Mapping[str, Any]], Geometry]]] = {
    "Point": _point,
    "MultiPoint": _points,
    "LineString": _line,
    "MultiLineString": _lines,
    "Polygon": _polygon,
    "MultiPolygon": _polygons,
}


def _is_strict(document: Mapping[str, Any]) -> bool:
    """Whether the reference system is the one with strict winding order. Raises for all except the two that mongod knows."""
    if "crs" not in document:
        return False
    system = document["crs"]
    if not (is_document(system) or is_array(system)):
        raise MalformedQueryError(f"the crs of a geometry must be a document, not {system!r}")
    fields = as_document(system)
    properties = fields.get("properties")
    if _text(fields.get("type")) != "name" or not (is_document(properties) or is_array(properties)):
        raise MalformedQueryError(f"the crs of a geometry must have type 'name' and properties, not {system!r}")
    name = _text(as_document(properties).get("name"))
    if name is None or name not in _COMMON | {_STRICT}:
        raise MalformedQueryError(f"unknown crs {system!r}")
    return name == _STRICT


def _require_common(document: Mapping[str, Any]) -> None:
    if _is_strict(document):
        raise MalformedQueryError("only polygons can have strict winding order")


def _text(value: Any) -> str | None:
    """Return a BSON string, else None; Code is a str in Python but not in BSON."""
    return value if isinstance(value, str) and type_bracket(value) == STRING else None


def _array(value: Any, what: str) -> list[Any]:
    if not is_array(value):
        raise MalformedQueryError(f"{what} must be an array, not {value!r}")
    return value  # type: ignore[no-any-return]


def _coordinates(value: Any) -> list[Point]:
    return [point_on_sphere(_array(part, "a coordinate"), more=True) for part in _array(value, "coordinates")]


def _vertices(value: Any) -> tuple[list[Any], list[tuple[float, float, float]]]:
    """Return S2Points without immediate repetitions, and the same as tuples, which can be compared."""
    vertices: list[Any] = []
    keys: list[tuple[float, float, float]] = []
    for place in _coordinates(value):
        vertex = place.vertex
        key = (vertex.x(), vertex.y(), vertex.z())
        if not keys or keys[-1] != key:
            vertices.append(vertex)
            keys.append(key)
    return vertices, keys


def _polyline(value: Any) -> Any:
    vertices, _ = _vertices(value)
    if len(vertices) < 2:
        raise MalformedQueryError(f"a LineString must have at least two different vertices: {value!r}")
    line = s2.S2Polyline()
    line.InitFromS2Points(vertices)
    if not line.IsValid():
        raise MalformedQueryError(f"the line is not valid, two neighbouring vertices are antipodes: {value!r}")
    return line


def _ring(value: Any) -> Any:
    """Return an S2Loop in its own winding."""
    vertices, keys = _vertices(value)
    if not keys or keys[0] != keys[-1]:
        raise MalformedQueryError(f"the ring of a polygon must end where it begins: {value!r}")
    if len(vertices) <= _FEWEST_CORNERS:
        raise MalformedQueryError(f"the ring of a polygon must have at least three different vertices: {value!r}")
    loop = s2.S2Loop()
    loop.Init(vertices[:-1])
    if not loop.IsValid():
        raise MalformedQueryError(f"the ring of a polygon crosses itself or uses a vertex twice: {value!r}")
    return loop


def _rings(value: Any) -> Any:
    """Return an S2Polygon: the first ring is its border, the others are holes in it."""
    loops: list[Any] = []
    for part in _array(value, "the coordinates of a polygon"):
        loop = _ring(part)
        loop.Normalize()
        if loops and not loops[0].Contains(loop):
            raise MalformedQueryError(f"the rings after the first must be holes in it: {value!r}")
        loops.append(loop)
    if not loops:
        raise MalformedQueryError("a polygon must have at least one ring")
    corners = [_corners(loop) for loop in loops] if len(loops) > 1 else []
    polygon = s2.S2Polygon()
    polygon.InitNested(loops)
    if corners:
        _check_holes(polygon, corners, value)
    return polygon


def _check_holes(polygon: Any, corners: list[set[tuple[float, float, float]]], value: Any) -> None:
    if not polygon.IsValid():
        raise MalformedQueryError(f"the rings of a polygon cross or share an edge: {value!r}")
    if any(len(corners[0] & hole) > 1 for hole in corners[1:]):
        raise MalformedQueryError(f"a hole shares more than one vertex with the border: {value!r}")
    depths = [polygon.loop(position).depth() for position in range(polygon.num_loops())]
    if depths.count(0) != 1 or max(depths) > 1:
        raise MalformedQueryError(f"a polygon has one border, and its holes cannot be nested: {value!r}")


def _corners(loop: Any) -> set[tuple[float, float, float]]:
    vertices = (loop.vertex(position) for position in range(loop.num_vertices()))
    return {(vertex.x(), vertex.y(), vertex.z()) for vertex in vertices}
