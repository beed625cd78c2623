"""Index of negations: filters that deny a path values beyond an end, certain values, or any value.

A search receives exactly the values that the path reaches (`quaestor.query.paths.reached`), never more, because each value
excludes filters. A doubtful value excludes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from quaestor.invalidation.matching.compact_set import CompactSet, added, elements, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.invalidation.matching.ranges import Ranges
from quaestor.planning.access_entries import Absent, Negative, Outside, Range, Unequal, hash_key
from quaestor.query.bson_order import MISSING, order_key

_Keys = tuple[Hashable, ...]
"""Set of values that a filter denies."""
_Axis = tuple[int, bool]
"""Bracket of the BSON order, and whether the filter applies only to records without arrays on the path."""


class NegationIndex:
    """Filters by the values that they deny one path. Incremental; a search costs its results and the sets of values in use."""

    __slots__ = ("_absent", "_by_key", "_outside", "_unequal")

    def __init__(self) -> None:
        self._absent: FilterSlot | None = None
        self._outside: dict[_Axis, Ranges] = {}
        self._unequal: dict[_Keys, FilterSlot] = {}
        self._by_key: dict[Hashable, _Keys | CompactSet[_Keys]] = {}

    def __bool__(self) -> bool:
        return bool(self._absent is not None or self._outside or self._unequal)

    def add(self, entry: Negative, item: Filter) -> None:
        """Keep a filter under this negation."""
        if isinstance(entry, Absent):
            self._absent = added(self._absent, item)
        elif isinstance(entry, Unequal):
            for key in entry.keys if entry.keys not in self._unequal else ():
                self._by_key[key] = added(self._by_key.get(key), entry.keys)
            self._unequal[entry.keys] = added(self._unequal.get(entry.keys), item)
        else:
            self._outside.setdefault((entry.bracket, entry.whole), Ranges()).add(_range(entry), item)

    def remove(self, entry: Negative, item: Filter) -> None:
        """Forget a filter that was added with this entry."""
        if isinstance(entry, Absent):
            self._absent = removed(self._absent, item)
        elif isinstance(entry, Unequal):
            slot = removed(self._unequal.get(entry.keys), item)
            if slot is not None:
                self._unequal[entry.keys] = slot
            elif self._unequal.pop(entry.keys, None) is not None:
                for key in entry.keys:
                    sets = self._by_key.pop(key)
                    # Equal sets need not be the same object, and a slot of a single element compares by identity.
                    if isinstance(sets, CompactSet) and (rest := removed(sets, entry.keys)) is not None:
                        self._by_key[key] = rest
        else:
            axis = (entry.bracket, entry.whole)
            self._outside[axis].remove(_range(entry), item)
            if not len(self._outside[axis]):
                del self._outside[axis]

    def load(self, entry: Negative) -> int:
        """Return roughly how many filters a record that satisfies `entry` finds there."""
        if isinstance(entry, Absent):
            return size(self._absent)
        if isinstance(entry, Unequal):
            return sum(map(size, self._unequal.values()))
        axis = (entry.bracket, entry.whole)
        candidates: list[FilterSlot] = []
        if axis in self._outside:
            end = entry.low if entry.low is not None else entry.high
            self._outside[axis].find(end, end, candidates)
        return sum(map(size, candidates))

    def find_one(self, value: Any, candidates: list[FilterSlot]) -> None:
        """Append the filters that the only value of this path, not an array, does not exclude."""
        if self._unequal:
            self._find_unequal({hash_key(value)}, candidates)
        if self._outside:
            key = order_key(value)
            for (bracket, _), ranges in self._outside.items():
                if key[0] == bracket and len(key) == 2:
                    ranges.find(key[1], key[1], candidates)
                else:
                    candidates.extend(ranges.everything())

    def find_missing(self, candidates: list[FilterSlot]) -> None:
        """Append the filters that a record without the path does not exclude."""
        if self._absent is not None:
            candidates.append(self._absent)
        if self._unequal:
            self._find_unequal({None}, candidates)
        for ranges in self._outside.values():
            candidates.extend(ranges.everything())

    def find_many(self, values: Sequence[Any], candidates: list[FilterSlot]) -> None:
        """Append the filters that none of the values excludes.

        values: all values that a path through arrays reaches; MISSING where the path ends early.
        """
        if self._absent is not None and all(value is MISSING for value in values):
            candidates.append(self._absent)
        if self._unequal:
            self._find_unequal({None if value is MISSING else hash_key(value) for value in values}, candidates)
        if self._outside:
            spans: dict[int, tuple[Any, Any]] = {}
            for key in map(order_key, values):
                if len(key) == 2 and ((key[0], False) in self._outside):
                    low, high = spans.get(key[0], (key[1], key[1]))
                    spans[key[0]] = (min(low, key[1]), max(high, key[1]))
            for (bracket, whole), ranges in self._outside.items():
                if whole or bracket not in spans:
                    candidates.extend(ranges.everything())
                else:
                    low, high = spans[bracket]
                    ranges.find(high, low, candidates)  # above the greatest value, below the least

    def everything(self) -> list[FilterSlot]:
        """Return every filter of the index."""
        slots = [] if self._absent is None else [self._absent]
        slots += self._unequal.values()
        for ranges in self._outside.values():
            slots += ranges.everything()
        return slots

    def _find_unequal(self, keys: set[Hashable], candidates: list[FilterSlot]) -> None:
        gone = {denied for key in keys if key in self._by_key for denied in elements(self._by_key[key])}
        if not gone:
            candidates.extend(self._unequal.values())
        elif len(gone) < len(self._unequal):
            candidates.extend(slot for denied, slot in self._unequal.items() if denied not in gone)


def _range(entry: Outside) -> Range:
    """Return the values that lead to the filter: up to the end, or from it on."""
    return Range(entry.path, entry.bracket, entry.low, entry.high)
