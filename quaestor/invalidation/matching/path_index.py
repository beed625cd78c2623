"""Index of the filters on one path: by value, interval, prefix, place, trait, negation, and existence."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from quaestor.invalidation.matching.compact_set import added, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.invalidation.matching.geo_index import GeoIndex
from quaestor.invalidation.matching.literals import LiteralIndex
from quaestor.invalidation.matching.negations import NegationIndex
from quaestor.invalidation.matching.prefixes import PrefixIndex
from quaestor.invalidation.matching.ranges import Ranges
from quaestor.invalidation.matching.traits import TraitIndex
from quaestor.planning.access_entries import (
    Equality,
    Exists,
    GeoSquares,
    Literals,
    PathEntry,
    Prefix,
    Range,
    Traits,
    hash_key,
)
from quaestor.query.bson_order import NUMBER, STRING, order_key
from quaestor.query.paths import reached


class PathIndex:
    """Filters by their demand on one path. Incremental; a search costs its results, and a little per kind.

    equal: filters by the values of `$eq` and `$in`, as hash keys.
    ranges: filters by bracket of the BSON order.
    places: filters by the rectangles that a geometry touches.
    exists: filters that any value satisfies.
    literals: filters by texts that a string holds; None: there are none.
    traits: filters by type, size and remainder; None: there are none.
    negations: filters by the values that they deny; None: there are none.
    filters: number of filters.
    whole_field: the path has one component.
    """

    __slots__ = (
        "equal",
        "exists",
        "filters",
        "literals",
        "negations",
        "parts",
        "path",
        "places",
        "prefixes",
        "ranges",
        "traits",
        "whole_field",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts = tuple(path.split("."))
        self.whole_field = len(self.parts) == 1
        self.equal: dict[Hashable, FilterSlot] = {}
        self.ranges: dict[int, Ranges] = {}
        self.prefixes = PrefixIndex()
        self.places = GeoIndex()
        self.exists: FilterSlot | None = None
        self.literals: LiteralIndex | None = None
        self.traits: TraitIndex | None = None
        self.negations: NegationIndex | None = None
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
        elif isinstance(entry, Exists):
            self.exists = added(self.exists, item)
        elif isinstance(entry, Literals):
            self.literals = self.literals or LiteralIndex()
            self.literals.add(entry.texts, item)
        elif isinstance(entry, Traits):
            self.traits = self.traits or TraitIndex()
            self.traits.add(entry, item)
        else:
            self.negations = self.negations or NegationIndex()
            self.negations.add(entry, item)

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
        elif isinstance(entry, Exists):
            self.exists = removed(self.exists, item)
        elif isinstance(entry, Literals):
            if self.literals is not None:
                self.literals.remove(entry.texts, item)
                self.literals = self.literals or None
        elif isinstance(entry, Traits):
            if self.traits is not None:
                self.traits.remove(entry, item)
                self.traits = self.traits or None
        elif self.negations is not None:
            self.negations.remove(entry, item)
            self.negations = self.negations or None

    def load(self, entry: PathEntry) -> int:
        """Return roughly how many filters a record that satisfies `entry` finds there."""
        if isinstance(entry, Equality):
            return sum(size(self.equal.get(key)) for key in entry.keys)
        if isinstance(entry, Exists):
            return size(self.exists)
        if isinstance(entry, GeoSquares):
            return self.places.load(entry.boxes)
        if isinstance(entry, Literals):
            return 0 if self.literals is None else self.literals.load(entry.texts)
        if isinstance(entry, Traits):
            return 0 if self.traits is None else self.traits.load(entry)
        if not isinstance(entry, Prefix | Range):
            return 0 if self.negations is None else self.negations.load(entry)
        candidates: list[FilterSlot] = []
        if isinstance(entry, Prefix):
            self.prefixes.find(entry.prefix, candidates)
        elif entry.bracket in self.ranges:
            end = entry.low if entry.low is not None else entry.high
            self.ranges[entry.bracket].find(end, end, candidates)
        return sum(size(slot) for slot in candidates)

    def find_missing(self, candidates: list[FilterSlot]) -> None:
        """Append the filters that a record without this path could satisfy to `candidates`."""
        slot = self.equal.get(None)
        if slot is not None:
            candidates.append(slot)
        if self.negations is not None:
            self.negations.find_missing(candidates)

    def find_one(self, value: Any, candidates: list[FilterSlot]) -> None:
        """Append the filters that the only value of this path, not an array, could satisfy."""
        kind = value.__class__
        if self.equal:
            slot = self.equal.get(hash_key(value))
            if slot is not None:
                candidates.append(slot)
        if self.ranges:
            if (kind is int or kind is float) and value == value:
                if NUMBER in self.ranges:
                    self.ranges[NUMBER].find(value, value, candidates)
            elif kind is str:
                if STRING in self.ranges:
                    self.ranges[STRING].find(value, value, candidates)
            else:
                key = order_key(value)
                if key[0] in self.ranges and len(key) == 2:
                    self.ranges[key[0]].find(key[1], key[1], candidates)
        if self.prefixes:
            self.prefixes.find_value(value, candidates)
        if self.places:
            self.places.find_value(value, candidates)
        if self.exists is not None:
            candidates.append(self.exists)
        if self.literals is not None and kind is not int and kind is not float:
            self.literals.find_value(value, candidates)
        if self.traits is not None:
            self.traits.find_value(value, candidates)
        if self.negations is not None:
            self.negations.find_one(value, candidates)

    def find_many(self, record: Mapping[str, Any], values: Iterable[Any], candidates: list[FilterSlot]) -> None:
        """Append the filters that any value of a path through arrays could satisfy. Null is never excluded.

        values: at least all values that the path reaches in the record.
        """
        spans: dict[int, tuple[Any, Any]] = {}
        anything = False
        if (nulls := self.equal.get(None)) is not None:
            candidates.append(nulls)
        for value in values:
            anything = True
            key = order_key(value)
            if len(key) == 2 and key[0] in self.ranges:
                low, high = spans.get(key[0], (key[1], key[1]))
                spans[key[0]] = (min(low, key[1]), max(high, key[1]))
            if value is not None and (slot := self.equal.get(hash_key(value))) is not None:
                candidates.append(slot)
            if self.prefixes:
                self.prefixes.find_value(value, candidates)
            if self.places:
                self.places.find_value(value, candidates)
            if self.literals is not None:
                self.literals.find_value(value, candidates)
            if self.traits is not None:
                self.traits.find_value(value, candidates)
        for bracket, (low, high) in spans.items():
            self.ranges[bracket].find(low, high, candidates)
        if anything and self.exists is not None:
            candidates.append(self.exists)
        if self.negations is not None:
            self.negations.find_many(reached(record, self.path), candidates)

    def everything(self) -> list[FilterSlot]:
        """Return every filter of the index: for a value that cannot be looked up."""
        slots: list[FilterSlot] = [*self.equal.values(), *self.prefixes.everything(), *self.places.everything()]
        for ranges in self.ranges.values():
            slots.extend(ranges.everything())
        if self.exists is not None:
            slots.append(self.exists)
        for part in (self.literals, self.traits, self.negations):
            if part is not None:
                slots.extend(part.everything())
        return slots


def _put_back(mapping: dict[Any, FilterSlot], key: Any, slot: FilterSlot | None) -> None:
    if slot is None:
        mapping.pop(key, None)
    else:
        mapping[key] = slot
