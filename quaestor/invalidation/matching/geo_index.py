"""Filters about places, found by where a record's geometry lies.

The plane of coordinates (degrees, or whatever numbers a 2d query uses) is cut into square cells at every size that is a
power of two. A filter's rectangle is kept in the at most four cells of the first size that is not smaller than itself; a
search looks into the cells of a geometry once for every size in use (a dozen or two), whatever the number of filters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

from quaestor.invalidation.matching.compact_set import CompactSet, added, removed, size
from quaestor.invalidation.matching.entities import Filter
from quaestor.query.geo.bounds import Box, boxes_of_geometry
from quaestor.query.geo.geojson import stored
from quaestor.query.paths import is_array, is_document

Slot = Filter | CompactSet[Filter]
Cell = tuple[int, int]

_SMALLEST: Final = -12
"""Cells of less than 2^-12 degrees, about 30 metres, would not tell filters apart any better."""
_MOST_CELLS: Final = 64
"""A geometry that spans more cells of one size than this is taken to reach all of that size."""


class GeoIndex:
    """Filters by rectangles. Incremental."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[int, dict[Cell, Slot]] = {}

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def add(self, boxes: Iterable[Box], item: Filter) -> None:
        for exponent, cell in _places(boxes):
            cells = self._sizes.setdefault(exponent, {})
            cells[cell] = added(cells.get(cell), item)

    def remove(self, boxes: Iterable[Box], item: Filter) -> None:
        for exponent, cell in _places(boxes):
            cells = self._sizes.get(exponent, {})
            slot = removed(cells.get(cell), item)
            if slot is not None:
                cells[cell] = slot
                continue
            cells.pop(cell, None)
            if not cells:
                self._sizes.pop(exponent, None)

    def load(self, boxes: Iterable[Box]) -> int:
        """How many filters share the cells of these rectangles."""
        return sum(size(self._sizes.get(exponent, {}).get(cell)) for exponent, cell in _places(boxes))

    def find(self, box: Box, found: list[Slot]) -> None:
        """Those whose cells a rectangle touches."""
        for exponent, cells in self._sizes.items():
            touched = _cells(box, exponent)
            if touched is None:
                found.extend(cells.values())
                continue
            for cell in touched:
                slot = cells.get(cell)
                if slot is not None:
                    found.append(slot)

    def find_value(self, value: Any, found: list[Slot]) -> None:
        """Those that a stored value could be near; none if it is not a geometry."""
        if not (is_array(value) or is_document(value)):
            return
        geometry = stored(value)
        if geometry is None:
            return
        if geometry.single:
            place = geometry.points[0]
            self.find((place.x, place.y, place.x, place.y), found)
            return
        for box in boxes_of_geometry(geometry) or ():
            self.find(box, found)

    def everything(self) -> list[Slot]:
        return [slot for cells in self._sizes.values() for slot in cells.values()]


def _places(boxes: Iterable[Box]) -> Iterator[tuple[int, Cell]]:
    """The cells of some rectangles, each once, with their size as an exponent of two."""
    seen: set[tuple[int, Cell]] = set()
    for box in boxes:
        left, low, right, high = box
        side = max(right - left, high - low)
        exponent = max(_SMALLEST, math.ceil(math.log2(side))) if side > 0 else _SMALLEST
        for cell in _cells(box, exponent) or ():
            if (exponent, cell) not in seen:
                seen.add((exponent, cell))
                yield exponent, cell


def _cells(box: Box, exponent: int) -> list[Cell] | None:
    """The cells of one size that a rectangle touches; None: too many to list."""
    scale = math.ldexp(1.0, -exponent)
    left, low, right, high = (math.floor(edge * scale) for edge in box)
    if (right - left + 1) * (high - low + 1) > _MOST_CELLS:
        return None
    return [(x, y) for x in range(left, right + 1) for y in range(low, high + 1)]
