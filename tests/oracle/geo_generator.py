"""Random places, lines, areas and questions about them, near each other so that many match. Seeded; borders are avoided
on the sphere by drawing coordinates from the reals, and asked for in the plane, where they are exact."""

from __future__ import annotations

import math
from random import Random
from typing import Any

Document = dict[str, Any]
Filter = dict[str, Any]
Place = list[float]

CENTERS = ((3.0, 4.0), (3.0, 4.0), (-70.0, 40.0), (179.0, -10.0), (20.0, 88.0), (-178.5, 60.0))
RADIUS_M = 6_378_100.0


class Generator:
    """One neighbourhood: everything drawn from it lies within `spread` degrees of its centre, more or less."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.center = self.random.choice(CENTERS)
        self.spread = self.random.choice((0.5, 5.0, 5.0, 40.0))

    def place(self) -> Place:
        x = self.center[0] + self.random.uniform(-1, 1) * self.spread
        y = self.center[1] + self.random.uniform(-1, 1) * self.spread
        return self._in_bounds(x, y)

    def _in_bounds(self, x: float, y: float) -> Place:
        x = (x + 180) % 360 - 180
        return [x, 180 - y if y > 90 else y]

    def ring(self, x: float, y: float, radius: float) -> list[Place]:
        """Star-shaped around a place, so that it seldom crosses itself."""
        corners = self.random.randint(3, 7)
        turns = sorted(self.random.uniform(0, 2 * math.pi) for _ in range(corners))
        ring = [
            self._in_bounds(x + math.cos(turn) * radius * far, y + math.sin(turn) * radius * far)
            for turn, far in ((turn, self.random.uniform(0.4, 1)) for turn in turns)
        ]
        if self.random.random() < 0.3:
            ring.reverse()
        return [*ring, ring[0]]

    def rings(self) -> list[list[Place]]:
        x, y = self.place()
        radius = self.random.uniform(0.1, 1.2) * self.spread
        rings = [self.ring(x, y, radius)]
        if self.random.random() < 0.3:
            rings.append(self.ring(x, y, radius * self.random.uniform(0.1, 0.6)))
        if self.random.random() < 0.05:
            rings.append(self.ring(x, y, radius * 0.2))
        if self.random.random() < 0.05:
            rings[0] = [self.place() for _ in range(4)]
        return rings

    def line(self) -> list[Place]:
        return [self.place() for _ in range(self.random.randint(1 if self.random.random() < 0.1 else 2, 4))]

    def geojson(self, depth: int = 0) -> Document:
        kind = self.random.choice(
            ("Point", "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "C")
        )
        if kind == "C":
            if depth:
                return {"type": "Point", "coordinates": self.place()}
            parts = [self.geojson(1) for _ in range(self.random.randint(1, 3))]
            return {"type": "GeometryCollection", "geometries": parts}
        coordinates: Any = {
            "Point": self.place,
            "LineString": self.line,
            "Polygon": self.rings,
            "MultiPoint": lambda: [self.place() for _ in range(self.random.randint(1, 3))],
            "MultiLineString": lambda: [self.line() for _ in range(self.random.randint(1, 3))],
            "MultiPolygon": lambda: [self.rings() for _ in range(self.random.randint(1, 3))],
        }[kind]()
        return {"type": kind, "coordinates": coordinates}

    def pair(self) -> Any:
        x, y = self.place()
        if self.random.random() < 0.3:
            x, y = round(x), round(y)
        return self.random.choice(([x, y], [x, y], {"lng": x, "lat": y}, {"x": x, "y": y, "more": 1}))

    def point(self) -> Any:
        return self.pair() if self.random.random() < 0.5 else {"type": "Point", "coordinates": self.place()}

    def location(self) -> Any:
        draw = self.random.random()
        if draw < 0.35:
            return self.geojson()
        if draw < 0.8:
            return self.point()
        if draw < 0.9:
            return [self.point() for _ in range(self.random.randint(0, 3))]
        return self.random.choice((None, "here", 5, [1], [1, "a"], {"type": "Point"}, {"type": "Pint"}, [200, 100], {}))

    def document(self, identifier: int) -> Document:
        if self.random.random() < 0.05:
            return {"_id": identifier}
        if self.random.random() < 0.1:
            return {"_id": identifier, "a": [{"loc": self.location()} for _ in range(2)], "loc": self.point()}
        return {"_id": identifier, "loc": self.location(), "a": {"loc": self.point()}}

    def flat_shape(self) -> Document:
        x, y = self.place()
        if self.random.random() < 0.4:
            x, y = round(x), round(y)
        size: float = self.random.choice((1, 2, self.random.uniform(0.1, 1.5) * self.spread))
        corners = [[x + self.random.uniform(-1, 1) * size, y + self.random.uniform(-1, 1) * size] for _ in range(5)]
        square = [[x - size, y - size], [x - size, y + size], [x + size, y + size], [x + size, y - size]]
        return self.random.choice(
            (
                {"$box": [[x - size, y - size], [x + size, y + size]]},
                {"$center": [[x, y], size]},
                {"$polygon": corners},
                {"$polygon": square},
            )
        )

    def question(self) -> Filter:
        path = self.random.choice(("loc", "loc", "loc", "a.loc"))
        draw = self.random.random()
        clause: Document
        if draw < 0.3:
            clause = {"$geoWithin": self.flat_shape()}
        elif draw < 0.4:
            clause = {
                "$geoWithin": {"$centerSphere": [self.place(), math.radians(self.random.uniform(0, 1.5) * self.spread)]}
            }
        elif draw < 0.65:
            clause = {"$geoWithin": {"$geometry": self.area()}}
        else:
            clause = {"$geoIntersects": {"$geometry": self.pair() if self.random.random() < 0.1 else self.geojson()}}
        if self.random.random() < 0.1:
            clause = {"$not": clause}
        return {path: clause}

    def area(self) -> Document:
        if self.random.random() < 0.7:
            area: Document = {"type": "Polygon", "coordinates": self.rings()}
            if self.random.random() < 0.15:
                area["crs"] = {"type": "name", "properties": {"name": "urn:x-mongodb:crs:strictwinding:EPSG:4326"}}
            return area
        return {"type": "MultiPolygon", "coordinates": [self.rings() for _ in range(2)]}

    def near(self) -> Document:
        """Asked where there is a 2dsphere index."""
        metres = math.radians(self.spread) * RADIUS_M
        limits: Document = {}
        if self.random.random() < 0.7:
            limits["$maxDistance"] = self.random.uniform(0, 1.5) * metres
        if self.random.random() < 0.3:
            limits["$minDistance"] = self.random.uniform(0, 0.7) * metres
        center = {"type": "Point", "coordinates": self.place()}
        if self.random.random() < 0.3:
            radians = {key: value / RADIUS_M for key, value in limits.items()}
            return {"$nearSphere": self.place(), **radians}
        if self.random.random() < 0.3:
            return {"$nearSphere": center, **limits}
        return {"$near": {"$geometry": center, **limits}}

    def flat_near(self) -> Document:
        """Asked where there is a 2d index."""
        x, y = self.place()
        limits: Document = {}
        if self.random.random() < 0.7:
            limits["$maxDistance"] = self.random.uniform(0, 1.5) * self.spread
        if self.random.random() < 0.3:
            limits["$minDistance"] = self.random.uniform(0, 0.7) * self.spread
        if self.random.random() < 0.2:
            return {"$near": [x, y, self.spread]}
        return {"$near": [x, y], **limits}
