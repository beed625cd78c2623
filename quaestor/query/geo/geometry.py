"""A geometry of a record or a query, split into points, lines and polygons.

Comparisons need no more: a collection intersects if any part does, and is contained if every part is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quaestor.query.geo.coordinates import Point


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Geometry:
    """A geometry, by its parts.

    points: all of them on the sphere, unless `single`.
    lines: S2Polylines.
    polygons: S2Polygons.
    single: one point and nothing else, which may be compared in the plane as well.
    big: the S2Loop of a polygon whose winding order chooses its inside; it stands alone.
    """

    points: tuple[Point, ...] = ()
    lines: tuple[Any, ...] = ()
    polygons: tuple[Any, ...] = ()
    single: bool = False
    big: Any = None

    @property
    def on_sphere(self) -> bool:
        return not self.single or self.points[0].on_sphere


def together(geometries: list[Geometry]) -> Geometry:
    """Return the parts of several geometries as one."""
    return Geometry(
        points=tuple(point for geometry in geometries for point in geometry.points),
        lines=tuple(line for geometry in geometries for line in geometry.lines),
        polygons=tuple(polygon for geometry in geometries for polygon in geometry.polygons),
    )
