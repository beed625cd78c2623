"""Several things under one entry, without paying for a container while there is only one.

A slot is None (nothing), the thing itself, or a `CompactSet` of two and more. A million entries with one thing each cost
nothing but a reference; an entry that a hundred thousand things share still loses any of them in constant time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class CompactSet(dict[T, None], Generic[T]):
    """An ordered set; its own class so that it cannot be taken for a thing in it."""

    __slots__ = ()


def added(slot: T | CompactSet[T] | None, item: T) -> T | CompactSet[T]:
    """The slot with `item` in it."""
    if slot is None or slot is item:
        return item
    if isinstance(slot, CompactSet):
        slot[item] = None
        return slot
    bucket: CompactSet[T] = CompactSet()
    bucket[slot] = None
    bucket[item] = None
    return bucket


def removed(slot: T | CompactSet[T] | None, item: T) -> T | CompactSet[T] | None:
    """The slot without `item`; None if nothing is left."""
    if slot is item:
        return None
    if isinstance(slot, CompactSet):
        slot.pop(item, None)
        if len(slot) == 1:
            return next(iter(slot))
    return slot


def things(slot: T | CompactSet[T] | None) -> Iterable[T]:
    """What is in the slot. Do not change the slot meanwhile."""
    if slot is None:
        return ()
    return slot if isinstance(slot, CompactSet) else (slot,)


def size(slot: object | None) -> int:
    return 0 if slot is None else len(slot) if isinstance(slot, CompactSet) else 1
