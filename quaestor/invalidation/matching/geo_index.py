"""Index of geographic filters, searched by the position of a record's geometry.

The plane of coordinates (degrees, or any numbers of a 2d query) is cut into squares at every size that is a power of two. A
filter's rectangle is kept in at most four squares: those of the smallest size that is not smaller than the rectangle. A search
visits the squares of a geometry once for every size in use (a dozen or two), at any number of filters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

from quaestor.invalidation.matching.compact_set import added, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.query.geo.bounds import Box, boxes_of_geometry
from quaestor.query.geo.geojson import stored
from quaestor.query.paths import is_array, is_document

Square = tuple[int, int]
"""Column and row of a square among the squares of one size."""

_SMALLEST: Final = -12
"""Exponent of the smallest squares: below 2^-12 degrees, about 30 metres, squares would not separate filters better."""
_MOST_SQUARES: Final = 64
"""A geometry that spans more squares of one size than this counts as touching every square of that size."""


class GeoIndex:
    """Filters by the rectangles that their geometries touch. Incremental."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[int, dict[Square, FilterSlot]] = {}

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def add(self, boxes: Iterable[Box], item: Filter) -> None:
        """Keep a filter under these rectangles."""
        for exponent, square in _places(boxes):
            squares = self._sizes.setdefault(exponent, {})
            squares[square] = added(squares.get(square), item)

    def remove(self, boxes: Iterable[Box], item: Filter) -> None:
        """Forget a filter that was added with these rectangles."""
        for exponent, square in _places(boxes):
            squares = self._sizes.get(exponent, {})
            slot = removed(squares.get(square), item)
            if slot is not None:
                squares[square] = slot
                continue
            squares.pop(square, None)
            if not squares:
                self._sizes.pop(exponent, None)

    def load(self, boxes: Iterable[Box]) -> int:
        """Number of filters that share the squares of these rectangles."""
        return sum(size(self._sizes.get(exponent, {}).get(square)) for exponent, square in _places(boxes))

    def find(self, box: Box, candidates: list[FilterSlot]) -> None:
        """Append the filters whose squares a rectangle touches to `candidates`."""
        for exponent, squares in self._sizes.items():
            touched = _squares(box, exponent)
            if touched is None:
                candidates.extend(squares.values())
                continue
            for square in touched:
                slot = squares.get(square)
                if slot is not None:
                    candidates.append(slot)

    def find_value(self, value: Any, candidates: list[FilterSlot]) -> None:
        """Append the filters whose squares a stored value touches; none if the value is no geometry."""
        if not (is_array(value) or is_document(value)):
            return
        geometry = stored(value)
        if geometry is None:
            return
        if geometry.single:
            place = geometry.points[0]
            self.find((place.x, place.y, place.x, place.y), candidates)
            return
        for box in boxes_of_geometry(geometry) or ():
            self.find(box, candidates)

    def everything(self) -> list[FilterSlot]:
        """Return every filter of the index."""
        return [slot for squares in self._sizes.values() for slot in squares.values()]


def _places(boxes: Iterable[Box]) -> Iterator[tuple[int, Square]]:
    """Yield the squares of some rectangles, each once, with their size as an exponent of two."""
    seen: set[tuple[int, Square]] = set()
    for box in boxes:
        left, low, right, high = box
        side = max(right - left, high - low)
        exponent = max(_SMALLEST, math.ceil(math.log2(side))) if side > 0 else _SMALLEST
        for square in _squares(box, exponent) or ():
            if (exponent, square) not in seen:
                seen.add((exponent, square))
                yield exponent, square


def _squares(box: Box, exponent: int) -> list[Square] | None:
    """Return the squares of one size that a rectangle touches; None: too many to list."""
    scale = math.ldexp(1.0, -exponent)
    left, low, right, high = (math.floor(edge * scale) for edge in box)
    if (right - left + 1) * (high - low + 1) > _MOST_SQUARES:
        return None
    return [(x, y) for x in range(left, right + 1) for y in range(low, high + 1)]
