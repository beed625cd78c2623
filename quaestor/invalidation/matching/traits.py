"""Index of the operators `$type`, `$size` and `$mod`, searched by the traits of a value."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from quaestor.invalidation.matching.compact_set import added, removed, size
from quaestor.invalidation.matching.entities import Filter, FilterSlot
from quaestor.planning.access_entries import Traits
from quaestor.query.operators.element import type_code
from quaestor.query.operators.integers import truncated
from quaestor.query.operators.modulo import remainder_of
from quaestor.query.paths import is_array


class TraitIndex:
    """Filters by traits of a value. Incremental; a search costs one look-up, and one for each divisor in use."""

    __slots__ = ("_by_key", "_divisors")

    def __init__(self) -> None:
        self._by_key: dict[Hashable, FilterSlot] = {}
        self._divisors: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, entry: Traits, item: Filter) -> None:
        """Keep a filter under these traits."""
        for key in entry.keys:
            if key not in self._by_key and isinstance(divisor := _divisor(key), int):
                self._divisors[divisor] = self._divisors.get(divisor, 0) + 1
            self._by_key[key] = added(self._by_key.get(key), item)

    def remove(self, entry: Traits, item: Filter) -> None:
        """Forget a filter that was added with these traits."""
        for key in entry.keys:
            slot = removed(self._by_key.get(key), item)
            if slot is not None:
                self._by_key[key] = slot
            elif self._by_key.pop(key, None) is not None and isinstance(divisor := _divisor(key), int):
                self._divisors[divisor] -= 1
                if not self._divisors[divisor]:
                    del self._divisors[divisor]

    def load(self, entry: Traits) -> int:
        """Return the number of filters that share traits with this one."""
        return sum(size(self._by_key.get(key)) for key in entry.keys)

    def find_value(self, value: Any, candidates: list[FilterSlot]) -> None:
        """Append the filters that demand a trait of this value to `candidates`."""
        keys: list[Hashable] = [("type", type_code(value))]
        if is_array(value):
            keys.append(("size", len(value)))
        elif self._divisors and (integer := truncated(value)) is not None:
            keys += [(divisor, remainder_of(integer, divisor)) for divisor in self._divisors]
        by_key = self._by_key
        candidates.extend(by_key[key] for key in keys if key in by_key)

    def everything(self) -> list[FilterSlot]:
        """Return every filter of the index."""
        return list(self._by_key.values())


def _divisor(key: Hashable) -> Any:
    return key[0] if isinstance(key, tuple) else None
