"""Set with constant-time random sampling; its elements know their place in it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """Object that is in at most one sampling set.

    place: belongs to the set.
    """

    place: int


T = TypeVar("T", bound=Placed)


class SamplingSet(Generic[T]):
    """Set in no order, in which adding, removing and drawing are O(1) each."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[T] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def add(self, item: T) -> None:
        """Put in an object that is in no such set."""
        item.place = len(self._items)
        self._items.append(item)

    def remove(self, item: T) -> None:
        """Take out an object, which must be in this set."""
        last = self._items.pop()
        if last is not item:
            self._items[item.place] = last
            last.place = item.place

    def sample(self, size: int, chance: Random) -> list[T]:
        """`size` of them at random, some perhaps twice; all, if there are no more than that."""
        items, count = self._items, len(self._items)
        if count <= size:
            return items.copy()
        draw = chance.random
        return [items[int(draw() * count)] for _ in range(size)]
