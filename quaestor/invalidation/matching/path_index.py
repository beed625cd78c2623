"""All the ways in which one path finds filters: by value, by interval, by prefix, by place, by being there at all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from sortedcontainers import SortedDict

from quaestor.invalidation.matching.access import Cells, Entry, Equality, Exists, Prefix, Range, hash_key
from quaestor.invalidation.matching.bucket import Bucket, added, removed, size
from quaestor.invalidation.matching.cells import CellIndex
from quaestor.invalidation.matching.intervals import IntervalTree
from quaestor.invalidation.matching.prefixes import PrefixIndex
from quaestor.invalidation.matching.registered import Filter
from quaestor.invalidation.query.bson_order import NUMBER, STRING, order_key

Slot = Filter | Bucket[Filter]


class Ranges:
    """Intervals over one bracket of the BSON order. One-sided ones are kept by their only end."""

    __slots__ = ("above", "below", "between")

    def __init__(self) -> None:
        self.between: IntervalTree[Slot] = IntervalTree()
        self.above: Any = SortedDict()
        self.below: Any = SortedDict()

    def __len__(self) -> int:
        return len(self.between) + len(self.above) + len(self.below)

    def add(self, entry: Range, item: Filter) -> None:
        if entry.low is not None and entry.high is not None:
            self.between.put(entry.low, entry.high, added(self.between.get(entry.low, entry.high), item))
        else:
            side, end = (self.above, entry.low) if entry.high is None else (self.below, entry.high)
            side[end] = added(side.get(end), item)

    def remove(self, entry: Range, item: Filter) -> None:
        if entry.low is not None and entry.high is not None:
            slot = removed(self.between.get(entry.low, entry.high), item)
            if slot is None:
                self.between.pop(entry.low, entry.high)
            else:
                self.between.put(entry.low, entry.high, slot)
        else:
            side, end = (self.above, entry.low) if entry.high is None else (self.below, entry.high)
            _put_back(side, end, removed(side.get(end), item))

    def find(self, low: Any, high: Any, found: list[Slot]) -> None:
        """Those that overlap [low, high]: the one value of a record, or the span of an array's."""
        if self.between:
            self.between.overlapping(low, high, found)
        if self.above:
            found.extend(self.above[end] for end in self.above.irange(None, high))
        if self.below:
            found.extend(self.below[end] for end in self.below.irange(low, None))


class PathIndex:
    """Filters by what they demand of one path. Incremental; a search costs what it finds, and a little per kind."""

    __slots__ = ("cells", "equal", "exists", "filters", "parts", "path", "prefixes", "ranges")

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts = tuple(path.split("."))
        self.equal: dict[Hashable, Slot] = {}
        self.ranges: dict[int, Ranges] = {}
        self.prefixes = PrefixIndex()
        self.cells = CellIndex()
        self.exists: Slot | None = None
        self.filters = 0

    def add(self, entry: Entry, item: Filter) -> None:
        self.filters += 1
        if isinstance(entry, Equality):
            for key in entry.keys:
                self.equal[key] = added(self.equal.get(key), item)
        elif isinstance(entry, Range):
            self.ranges.setdefault(entry.bracket, Ranges()).add(entry, item)
        elif isinstance(entry, Prefix):
            self.prefixes.add(entry.prefix, item)
        elif isinstance(entry, Cells):
            self.cells.add(entry.boxes, item)
        else:
            self.exists = added(self.exists, item)

    def remove(self, entry: Entry, item: Filter) -> None:
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
        elif isinstance(entry, Cells):
            self.cells.remove(entry.boxes, item)
        else:
            self.exists = removed(self.exists, item)

    def load(self, entry: Entry) -> int:
        """How many filters a record would find there that satisfies `entry`, roughly."""
        if isinstance(entry, Equality):
            return sum(size(self.equal.get(key)) for key in entry.keys)
        if isinstance(entry, Exists):
            return size(self.exists)
        if isinstance(entry, Cells):
            return self.cells.load(entry.boxes)
        found: list[Slot] = []
        if isinstance(entry, Prefix):
            self.prefixes.find(entry.prefix, found)
        elif entry.bracket in self.ranges:
            end = entry.low if entry.low is not None else entry.high
            self.ranges[entry.bracket].find(end, end, found)
        return sum(size(slot) for slot in found)

    def find_missing(self, found: list[Slot]) -> None:
        """The filters that want null or nothing at this path."""
        slot = self.equal.get(None)
        if slot is not None:
            found.append(slot)

    def find_one(self, value: Any, found: list[Slot]) -> None:
        """The filters that the only value at this path, which is not an array, could satisfy."""
        kind = value.__class__
        if self.equal and (slot := self.equal.get(hash_key(value))) is not None:
            found.append(slot)
        if self.ranges:
            if (kind is int or kind is float) and value == value:
                bracket, payload = NUMBER, value
            elif kind is str:
                bracket, payload = STRING, value
            else:
                key = order_key(value)
                bracket, payload = key if len(key) == 2 else (key[0], None)
            if bracket in self.ranges:
                self.ranges[bracket].find(payload, payload, found)
        if self.prefixes:
            self.prefixes.find_value(value, found)
        if self.cells:
            self.cells.find_value(value, found)
        if self.exists is not None:
            found.append(self.exists)

    def find_many(self, values: Iterable[Any], found: list[Slot]) -> None:
        """The filters that a path through arrays could satisfy, by whichever of these values. Null is never ruled out."""
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
            if self.cells:
                self.cells.find_value(value, found)
        for bracket, (low, high) in spans.items():
            self.ranges[bracket].find(low, high, found)
        if anything and self.exists is not None:
            found.append(self.exists)

    def everything(self) -> list[Slot]:
        """Every filter here: for a value that cannot be looked up."""
        found: list[Slot] = [*self.equal.values(), *self.prefixes.everything(), *self.cells.everything()]
        for ranges in self.ranges.values():
            found.extend([*ranges.between.payloads(), *ranges.above.values(), *ranges.below.values()])
        if self.exists is not None:
            found.append(self.exists)
        return found


def _put_back(mapping: dict[Any, Slot], key: Any, slot: Slot | None) -> None:
    if slot is None:
        mapping.pop(key, None)
    else:
        mapping[key] = slot
