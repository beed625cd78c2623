"""Sets that need no container for a single element.

A slot is None (the empty set), the element itself, or a `CompactSet` of two or more. A million slots with one element each cost
only a reference each. A slot of a hundred thousand elements still loses any of them in constant time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class CompactSet(dict[T, None], Generic[T]):
    """Ordered set of two or more elements of a slot. Its own class, so that it is never mistaken for an element."""

    __slots__ = ()


def added(slot: T | CompactSet[T] | None, item: T) -> T | CompactSet[T]:
    """Return the slot with `item` added. O(1)."""
    if slot is None or slot is item:
        return item
    if isinstance(slot, CompactSet):
        slot[item] = None
        return slot
    several: CompactSet[T] = CompactSet()
    several[slot] = None
    several[item] = None
    return several


def removed(slot: T | CompactSet[T] | None, item: T) -> T | CompactSet[T] | None:
    """Return the slot without `item`; None if it is then empty. O(1)."""
    if slot is item:
        return None
    if isinstance(slot, CompactSet):
        slot.pop(item, None)
        if len(slot) == 1:
            return next(iter(slot))
    return slot


def elements(slot: T | CompactSet[T] | None) -> Iterable[T]:
    """Return the elements of the slot. Do not change the slot during the iteration."""
    if slot is None:
        return ()
    return slot if isinstance(slot, CompactSet) else (slot,)


def size(slot: object | None) -> int:
    """Return the number of elements in the slot."""
    return 0 if slot is None else len(slot) if isinstance(slot, CompactSet) else 1
