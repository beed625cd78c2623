"""Places of the members of a result in its order, where the result does not show its sort fields.

A member whose sort key changes, and which stays between its neighbours, changes nothing visible. The keys come from one
snapshot. The keys of this write partition's members follow its writes. The writes to neighbours in other partitions are
unknown here. Such a pair is therefore divided once for all, at the snapshot's key of the earlier member. The earlier member
stays up to that key, and the later one behind it. Both cells know that key. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.query.sorting import SortKey

_PLACE: Final = 250


class Places:
    """Places of the members of one result.

    skipping: records are skipped before the first member; they may come as near as its key in the snapshot.
    full: records may stand behind the last member, as near as its key in the snapshot.
    """

    __slots__ = ("_first", "_keys", "_known", "_last", "_own", "_snapshot")

    def __init__(self, keys: Sequence[SortKey], hashes: Sequence[int | None], *, skipping: bool, full: bool) -> None:
        """keys, hashes: of the members, in order; the hash is None for members of other write partitions."""
        self._snapshot = tuple(keys)
        self._keys = list(keys)
        self._own = {identity: place for place, identity in enumerate(hashes) if identity is not None}
        self._known = tuple(identity is not None for identity in hashes)
        self._first = keys[0] if skipping else None
        self._last = keys[-1] if full else None

    @property
    def bytes(self) -> int:
        """Estimated memory in bytes."""
        return _PLACE * len(self._keys)

    def keeps(self, identity: int, key: SortKey) -> bool:
        """Follow a write that gives a member this key; return whether all members keep their places. O(1).

        Equal keys do not prove a place: the database orders such records freely.
        """
        place = self._own.get(identity)
        if place is None:
            return False
        if key != self._keys[place] and not (
            self._behind_the_one_before(place, key) and self._before_the_next(place, key)
        ):
            return False
        self._keys[place] = key
        return True

    def _behind_the_one_before(self, place: int, key: SortKey) -> bool:
        if place == 0:
            return self._first is None or key >= self._first
        keys = self._keys if self._known[place - 1] else self._snapshot
        return key > keys[place - 1]

    def _before_the_next(self, place: int, key: SortKey) -> bool:
        if place == len(self._keys) - 1:
            return self._last is None or key <= self._last
        return key < self._keys[place + 1] if self._known[place + 1] else key <= self._snapshot[place]
