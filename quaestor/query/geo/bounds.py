"""Rectangles of longitude and latitude (or x and y) around geometries, for quick look-ups in an index.

A rectangle is never too small. On the sphere it has a margin of about a metre, because a point near a border counts as on the
border. A geometry that reaches the 180th meridian has one rectangle on either side.
"""

from __future__ import annotations

from typing import Any, Final

from quaestor.query.geo.geometry import Geometry
from quaestor.query.optional_parts import s2

Box = tuple[float, float, float, float]
"""Least x, least y, greatest x, greatest y."""

_MARGIN_RAD: Final = 2e-7
_EDGE: Final = 180.0 - 1e-4


def rectangle(left: float, low: float, right: float, high: float) -> Box:
    return (left, low, right, high)


def boxes_of_geometry(geometry: Geometry) -> tuple[Box, ...] | None:
    """Return rectangles that together hold the geometry; None if they would be the whole sphere."""
    if geometry.big is not None:
        return None
    if geometry.single and not geometry.on_sphere:
        place = geometry.points[0]
        return ((place.x, place.y, place.x, place.y),)
    boxes: list[Box] = []
    for region in (*(point.cell for point in geometry.points), *geometry.lines, *geometry.polygons):
        boxes.extend(_boxes(region.GetRectBound()))
    return tuple(boxes)


def boxes_of_cap(cap: Any) -> tuple[Box, ...]:
    """Return rectangles that together hold an S2Cap."""
    return _boxes(cap.GetRectBound())


def _boxes(bound: Any) -> tuple[Box, ...]:
    wide = bound.ExpandedByDistance(s2.S1Angle.Radians(_MARGIN_RAD))
    low, high = wide.lat_lo().degrees(), wide.lat_hi().degrees()
    left, right = wide.lng_lo().degrees(), wide.lng_hi().degrees()
    if left > right:
        return ((left, low, 180.0, high), (-180.0, low, right, high))
    boxes: list[Box] = [(left, low, right, high)]
    if right >= _EDGE and left > -_EDGE:
        boxes.append((-180.0, low, -_EDGE, high))
    if left <= -_EDGE and right < _EDGE:
        boxes.append((_EDGE, low, 180.0, high))
    return tuple(boxes)
