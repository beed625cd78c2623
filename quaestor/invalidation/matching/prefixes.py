"""Index of the anchored regular expressions, searched by the beginning of a string.

A search costs one look-up for each length of prefix in use (a few dozen at most in practice), at any number of prefixes.
"""

from __future__ import annotations

from typing import Any

from quaestor.invalidation.matching.compact_set import added, removed
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.query.bson_order import REGEX, bracket_of


class PrefixIndex:
    """Filters by a prefix of a string value. Incremental."""

    __slots__ = ("_by_prefix", "_lengths")

    def __init__(self) -> None:
        self._by_prefix: dict[str, FilterSlot] = {}
        self._lengths: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_prefix)

    def add(self, prefix: str, item: Filter) -> None:
        """Keep a filter under this prefix."""
        if prefix not in self._by_prefix:
            self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
        self._by_prefix[prefix] = added(self._by_prefix.get(prefix), item)

    def remove(self, prefix: str, item: Filter) -> None:
        """Forget a filter that was added with this prefix."""
        if prefix not in self._by_prefix:
            return
        slot = removed(self._by_prefix[prefix], item)
        if slot is not None:
            self._by_prefix[prefix] = slot
            return
        del self._by_prefix[prefix]
        self._lengths[len(prefix)] -= 1
        if not self._lengths[len(prefix)]:
            del self._lengths[len(prefix)]

    def find(self, text: str, candidates: list[FilterSlot]) -> None:
        """Append the filters with a prefix of `text` to `candidates`."""
        slots = map(self._by_prefix.get, (text[:length] for length in self._lengths))
        candidates.extend(slot for slot in slots if slot is not None)

    def find_value(self, value: Any, candidates: list[FilterSlot]) -> None:
        """Append the filters that a value may satisfy to `candidates`.

        A string is searched by its beginning. A stored regular expression may satisfy each filter.
        """
        if value.__class__ is str:
            self.find(value, candidates)
        elif isinstance(value, str):
            self.find(str(value), candidates)
        elif bracket_of(value.__class__) == REGEX:
            candidates.extend(self._by_prefix.values())

    def everything(self) -> list[FilterSlot]:
        """Return every filter of the index."""
        return list(self._by_prefix.values())
