"""Sides of the subscribed queries of one namespace, and the search for the sides that a write concerns.

A write concerns a side if the record matches it after the write, or belonged to it before. The announcement of the query
decides how the state before is known: by membership or by before-images. Membership is a set of hashes of matching records,
which follows the writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quaestor.invalidation.matching.compact_set import CompactSet, added, elements, removed
from quaestor.invalidation.matching.entities import Filter, SubscribedQuery, SubscribedSide
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.invalidation.matching.memory_estimates import SIDE_MEMBER
from quaestor.invalidation.matching.predicate_results import PredicateResults
from quaestor.invalidation.matching.retention import Retained
from quaestor.model import Version


class MemoryUse:
    """Estimated memory of all subscribed queries of a node (see memory_estimates.py).

    bytes: the estimate in bytes.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class SubscribedSides:
    """Sides that read one namespace. Incremental; not thread-safe.

    sides: all sides, in the order of arrival.
    members: sides that hold a record, by record hash.
    by_images: sides without members.
    unindexed: number of sides that every write tries.
    concerned: queries that writes concern, in all namespaces, until the owner takes them.
    """

    __slots__ = ("_memory", "by_images", "concerned", "members", "sides", "unindexed")

    def __init__(self, concerned: dict[SubscribedQuery, None], memory: MemoryUse) -> None:
        self.sides: dict[SubscribedSide, None] = {}
        self.members: dict[int, SubscribedSide | CompactSet[SubscribedSide]] = {}
        self.by_images: dict[SubscribedSide, None] = {}
        self.unindexed = 0
        self.concerned = concerned
        self._memory = memory

    def add(self, side: SubscribedSide) -> None:
        """Match this side from now on by its filter; it has no members yet."""
        side.filter.sides = added(side.filter.sides, side)
        self.sides[side] = None
        self.unindexed += side.filter.broad
        if side.members is None:
            self.by_images[side] = None

    def remove(self, side: SubscribedSide) -> None:
        """Stop matching this side. O(its members)."""
        for member in list(side.members or ()):
            self.remove_member(side, member)
        self.by_images.pop(side, None)
        self.sides.pop(side, None)
        self.unindexed -= side.filter.broad
        side.filter.sides = removed(side.filter.sides, side)

    def process(self, entry: Retained, matched: Iterable[Filter], results: PredicateResults, index: QueryIndex) -> None:
        """Add the queries that this write concerns to `concerned`, and let membership follow it.

        The announced result may be newer than the write. The record looked up for an update may be newer still. Membership
        must then not follow the write: a later write, which made that state, would find the record gone.

        matched: the filters that hold after the write.
        """
        identity, version = entry.identity, entry.image.version
        now = {side: None for item in matched for side in _read_before(elements(item.sides), version)}
        for side in list(_read_before(elements(self.members.get(identity)), version)):
            self.concerned[side.query] = None
            if side not in now:
                self.remove_member(side, identity)
        for side in now:
            self.concerned[side.query] = None
            self.add_member(side, identity)
        if self.by_images:
            self._before(entry, results, index)

    def add_member(self, side: SubscribedSide, identity: int) -> None:
        """Add this record to the members of the side. Does nothing for a side with before-images."""
        if side.members is not None and identity not in side.members:
            side.members.add(identity)
            self._memory.bytes += SIDE_MEMBER
            self.members[identity] = added(self.members.get(identity), side)

    def remove_member(self, side: SubscribedSide, identity: int) -> None:
        """Remove this record from the members of the side. Does nothing if it is no member."""
        if side.members is None or identity not in side.members:
            return
        side.members.discard(identity)
        self._memory.bytes -= SIDE_MEMBER
        slot = removed(self.members.get(identity), side)
        if slot is None:
            self.members.pop(identity, None)
        else:
            self.members[identity] = slot

    def _before(self, entry: Retained, results: PredicateResults, index: QueryIndex) -> None:
        image = entry.image
        if not image.before_known:
            self.concerned.update((side.query, None) for side in _read_before(self.by_images, image.version))
        elif image.before is not None:
            for item in dict.fromkeys(index.candidates(image.before)):
                for side in _read_before(elements(item.sides), image.version):
                    if side.members is None and results.matched_before(item):
                        self.concerned[side.query] = None


def _read_before(sides: Iterable[SubscribedSide], version: Version) -> Iterator[SubscribedSide]:
    """Return the sides of queries whose announced result does not contain the writes of this version yet."""
    return (side for side in sides if side.query.version < version)
