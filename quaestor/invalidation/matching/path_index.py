"""Index of the filters on one path: by value, by interval, by prefix, by place, by being there at all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from quaestor.invalidation.matching.compact_set import added, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.invalidation.matching.geo_index import GeoIndex
from quaestor.invalidation.matching.prefixes import PrefixIndex
from quaestor.invalidation.matching.ranges import Ranges
from quaestor.planning.access_paths import Equality, Exists, GeoSquares, PathEntry, Prefix, Range, hash_key
from quaestor.query.bson_order import NUMBER, STRING, order_key


class PathIndex:
    """Filters by what they demand of one path. Incremental; a search costs what it finds, and a little per kind.

    equal: by the values that `$eq` and `$in` ask for, as hash keys.
    ranges: by bracket of the BSON order.
    places: by the rectangles that a geometry touches.
    exists: those that want any value.
    filters: how many it keeps.
    whole_field: the path has one component.
    """

    __slots__ = ("equal", "exists", "filters", "parts", "path", "places", "prefixes", "ranges", "whole_field")

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts = tuple(path.split("."))
        self.whole_field = len(self.parts) == 1
        self.equal: dict[Hashable, FilterSlot] = {}
        self.ranges: dict[int, Ranges] = {}
        self.prefixes = PrefixIndex()
        self.places = GeoIndex()
        self.exists: FilterSlot | None = None
        self.filters = 0

    def add(self, entry: PathEntry, item: Filter) -> None:
        """Keep a filter under one of its access paths."""
        self.filters += 1
        if isinstance(entry, Equality):
            for key in entry.keys:
                self.equal[key] = added(self.equal.get(key), item)
        elif isinstance(entry, Range):
            if entry.bracket not in self.ranges:
                self.ranges[entry.bracket] = Ranges()
            self.ranges[entry.bracket].add(entry, item)
        elif isinstance(entry, Prefix):
            self.prefixes.add(entry.prefix, item)
        elif isinstance(entry, GeoSquares):
            self.places.add(entry.boxes, item)
        else:
            self.exists = added(self.exists, item)

    def remove(self, entry: PathEntry, item: Filter) -> None:
        """Forget a filter that was added with this access path."""
        self.filters -= 1
        if isinstance(entry, Equality):
            for key in entry.keys:
                _put_back(self.equal, key, removed(self.equal.get(key), item))
        elif isinstance(entry, Range):
            ranges = self.ranges[entry.bracket]
            ranges.remove(entry, item)
            if not len(ranges):
                del self.ranges[entry.bracket]
        elif isinstance(entry, Prefix):
            self.prefixes.remove(entry.prefix, item)
        elif isinstance(entry, GeoSquares):
            self.places.remove(entry.boxes, item)
        else:
            self.exists = removed(self.exists, item)

    def load(self, entry: PathEntry) -> int:
        """Number of filters that a record which satisfies `entry` would find there, roughly."""
        if isinstance(entry, Equality):
            return sum(size(self.equal.get(key)) for key in entry.keys)
        if isinstance(entry, Exists):
            return size(self.exists)
        if isinstance(entry, GeoSquares):
            return self.places.load(entry.boxes)
        found: list[FilterSlot] = []
        if isinstance(entry, Prefix):
            self.prefixes.find(entry.prefix, found)
        elif entry.bracket in self.ranges:
            end = entry.low if entry.low is not None else entry.high
            self.ranges[entry.bracket].find(end, end, found)
        return sum(size(slot) for slot in found)

    def find_missing(self, found: list[FilterSlot]) -> None:
        """Append the filters that want null or nothing at this path to `found`."""
        slot = self.equal.get(None)
        if slot is not None:
            found.append(slot)

    def find_one(self, value: Any, found: list[FilterSlot]) -> None:
        """Append the filters that the only value at this path, which is not an array, could satisfy."""
        kind = value.__class__
        if self.equal:
            slot = self.equal.get(hash_key(value))
            if slot is not None:
                found.append(slot)
        if self.ranges:
            if (kind is int or kind is float) and value == value:
                if NUMBER in self.ranges:
                    self.ranges[NUMBER].find(value, value, found)
            elif kind is str:
                if STRING in self.ranges:
                    self.ranges[STRING].find(value, value, found)
            else:
                key = order_key(value)
                if key[0] in self.ranges and len(key) == 2:
                    self.ranges[key[0]].find(key[1], key[1], found)
        if self.prefixes:
            self.prefixes.find_value(value, found)
        if self.places:
            self.places.find_value(value, found)
        if self.exists is not None:
            found.append(self.exists)

    def find_many(self, values: Iterable[Any], found: list[FilterSlot]) -> None:
        """Append the filters that a path through arrays could satisfy, by whichever of these values. Null is never ruled out."""
        spans: dict[int, tuple[Any, Any]] = {}
        anything = False
        self.find_missing(found)
        for value in values:
            anything = True
            key = order_key(value)
            if len(key) == 2 and key[0] in self.ranges:
                low, high = spans.get(key[0], (key[1], key[1]))
                spans[key[0]] = (min(low, key[1]), max(high, key[1]))
            if value is not None and (slot := self.equal.get(hash_key(value))) is not None:
                found.append(slot)
            if self.prefixes:
                self.prefixes.find_value(value, found)
            if self.places:
                self.places.find_value(value, found)
        for bracket, (low, high) in spans.items():
            self.ranges[bracket].find(low, high, found)
        if anything and self.exists is not None:
            found.append(self.exists)

    def everything(self) -> list[FilterSlot]:
        """Every filter here: for a value that cannot be looked up."""
        found: list[FilterSlot] = [*self.equal.values(), *self.prefixes.everything(), *self.places.everything()]
        for ranges in self.ranges.values():
            found.extend(ranges.everything())
        if self.exists is not None:
            found.append(self.exists)
        return found


def _put_back(mapping: dict[Any, FilterSlot], key: Any, slot: FilterSlot | None) -> None:
    if slot is None:
        mapping.pop(key, None)
    else:
        mapping[key] = slot
