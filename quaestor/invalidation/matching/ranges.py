"""Index of the range filters over one bracket of the BSON order: bounded on both sides, or on one."""

from __future__ import annotations

from typing import Any

from sortedcontainers import SortedDict

from quaestor.invalidation.matching.compact_set import CompactSet, added, removed
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.invalidation.matching.intervals import IntervalTree
from quaestor.planning.access_entries import Range


class Ranges:
    """Filters by the interval in which a value must lie. One-sided intervals are kept by their only end, in order."""

    __slots__ = ("_above", "_below", "_between")

    def __init__(self) -> None:
        self._between: IntervalTree[FilterSlot] = IntervalTree()
        self._above: Any = None
        self._below: Any = None

    def __len__(self) -> int:
        return len(self._between) + len(self._above or ()) + len(self._below or ())

    def add(self, entry: Range, item: Filter) -> None:
        """Keep a filter under this range."""
        if entry.low is not None and entry.high is not None:
            slot = self._between.get(entry.low, entry.high)
            if slot is None or not isinstance(slot, CompactSet):
                self._between.put(entry.low, entry.high, added(slot, item))
            else:
                added(slot, item)
        elif entry.high is None:
            self._above = SortedDict() if self._above is None else self._above
            self._above[entry.low] = added(self._above.get(entry.low), item)
        else:
            self._below = SortedDict() if self._below is None else self._below
            self._below[entry.high] = added(self._below.get(entry.high), item)

    def remove(self, entry: Range, item: Filter) -> None:
        """Forget a filter that was added with this range."""
        if entry.low is not None and entry.high is not None:
            slot = removed(self._between.get(entry.low, entry.high), item)
            if slot is None:
                self._between.pop(entry.low, entry.high)
            else:
                self._between.put(entry.low, entry.high, slot)
            return
        ends, end = (self._above, entry.low) if entry.high is None else (self._below, entry.high)
        slot = removed(ends.get(end), item)
        if slot is None:
            del ends[end]
        else:
            ends[end] = slot

    def find(self, low: Any, high: Any, candidates: list[FilterSlot]) -> None:
        """Append the filters whose range overlaps [low, high] to `candidates`.

        low, high: the single value of a record twice, or the span of an array's values.
        """
        self._between.overlapping(low, high, candidates)
        if self._above:
            candidates.extend(self._above[end] for end in self._above.irange(None, high))
        if self._below:
            candidates.extend(self._below[end] for end in self._below.irange(low, None))

    def everything(self) -> list[FilterSlot]:
        """Return every filter of the index."""
        return [*self._between.payloads(), *(self._above or {}).values(), *(self._below or {}).values()]
