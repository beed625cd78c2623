"""Sets that cost no container while they hold a single element.

A slot is None (the empty set), the element itself, or a `CompactSet` of two and more. A million slots with one element
each cost nothing but a reference; a slot that a hundred thousand elements share still loses any of them in constant time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class CompactSet(dict[T, None], Generic[T]):
    """Ordered set of two or more elements of a slot; its own class so that it cannot be taken for an element."""

    __slots__ = ()


def added(slot: T | CompactSet[T] | None, item: T) -> T | CompactSet[T]:
    """The slot with `item` in it. O(1)."""
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
    """The slot without `item`; None if nothing is left. O(1)."""
    if slot is item:
        return None
    if isinstance(slot, CompactSet):
        slot.pop(item, None)
        if len(slot) == 1:
            return next(iter(slot))
    return slot


def elements(slot: T | CompactSet[T] | None) -> Iterable[T]:
    """The elements of the slot. Do not change the slot meanwhile."""
    if slot is None:
        return ()
    return slot if isinstance(slot, CompactSet) else (slot,)


def size(slot: object | None) -> int:
    """Number of elements of the slot."""
    return 0 if slot is None else len(slot) if isinstance(slot, CompactSet) else 1
