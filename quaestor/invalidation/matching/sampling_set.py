"""Set with constant-time random sampling; its elements store their own position in it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """Object that is in at most one sampling set.

    place: position in the set; only the set changes it.
    """

    place: int


T = TypeVar("T", bound=Placed)


class SamplingSet(Generic[T]):
    """Unordered set whose adding, removing and drawing are O(1) each."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[T] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def add(self, item: T) -> None:
        """Add an object that is in no sampling set."""
        item.place = len(self._items)
        self._items.append(item)

    def remove(self, item: T) -> None:
        """Remove an object, which must be in this set."""
        last = self._items.pop()
        if last is not item:
            self._items[item.place] = last
            last.place = item.place

    def sample(self, size: int, chance: Random) -> list[T]:
        """Return `size` random elements, some perhaps twice; all elements if there are no more than that."""
        items, count = self._items, len(self._items)
        if count <= size:
            return items.copy()
        draw = chance.random
        return [items[int(draw() * count)] for _ in range(size)]
