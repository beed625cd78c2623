"""A collection that hands out random members in constant time; its members know their place in it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """Something that is in at most one pool.

    place: belongs to the pool.
    """

    place: int


T = TypeVar("T", bound=Placed)


class Pool(Generic[T]):
    """Adding, removing and drawing are O(1) each. In no order."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[T] = []

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def add(self, item: T) -> None:
        item.place = len(self._items)
        self._items.append(item)

    def remove(self, item: T) -> None:
        """`item` must be in this pool."""
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
