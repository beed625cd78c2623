"""Places of the members of a result in its order, where the result does not show what it is ordered by.

A member whose sort key changes and which stays between its neighbours changes nothing that anybody sees. The keys are those of
one snapshot; those of this write partition's members follow its writes. What the neighbours in other partitions do is not known
here, so such a pair is divided once for all, at the key that the earlier of the two had in the snapshot: it stays up to there,
and the later one behind it. Both cells know that. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.query.sorting import SortKey

_PLACE: Final = 250


class Places:
    """Places of the members of one result.

    skipping: records are skipped before the first one, and these may come as near to it as its key was in the snapshot.
    full: records may stand behind the last one, as near.
    """

    __slots__ = ("_first", "_keys", "_known", "_last", "_own", "_snapshot")

    def __init__(self, keys: Sequence[SortKey], hashes: Sequence[int | None], *, skipping: bool, full: bool) -> None:
        """keys, hashes: of the members, in order; the hash is None for those of other write partitions."""
        self._snapshot = tuple(keys)
        self._keys = list(keys)
        self._own = {identity: place for place, identity in enumerate(hashes) if identity is not None}
        self._known = tuple(identity is not None for identity in hashes)
        self._first = keys[0] if skipping else None
        self._last = keys[-1] if full else None

    @property
    def bytes(self) -> int:
        """Memory that it is taken to cost."""
        return _PLACE * len(self._keys)

    def keeps(self, identity: int, key: SortKey) -> bool:
        """Follow a write to a member, after which it has this key; whether everybody stands where they stood. O(1).

        Equal keys tell nothing: which of two such records comes first is the database's own business.
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
        one = self._keys if self._known[place - 1] else self._snapshot
        return key > one[place - 1]

    def _before_the_next(self, place: int, key: SortKey) -> bool:
        if place == len(self._keys) - 1:
            return self._last is None or key <= self._last
        return key < self._keys[place + 1] if self._known[place + 1] else key <= self._snapshot[place]
