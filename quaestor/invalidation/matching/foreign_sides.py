"""Foreign sides: reads of pipelines in a namespace besides their own records, as a node matches them.

Queries with the same condition and the same fields share a side, so a write is judged once for all of them. The number of
conditions in a namespace is bounded, because every write tries them. At the bound, a further condition counts every write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from quaestor.invalidation.matching.entities import ActiveQuery
from quaestor.model import AfterImage, WriteKind
from quaestor.planning.foreign_reads import ForeignRead
from quaestor.planning.relevant_fields import Fields

_MOST: Final = 512
_Key = tuple[bytes, Fields]


class _Side:
    """Condition with its fields, and the queries that share it."""

    __slots__ = ("queries", "read")

    def __init__(self, read: ForeignRead) -> None:
        self.read = read
        self.queries: dict[ActiveQuery, None] = {}


class ForeignSides:
    """Foreign sides of one namespace. Not thread-safe."""

    __slots__ = ("_by_query", "_sides")

    def __init__(self) -> None:
        self._sides: dict[_Key, _Side] = {}
        self._by_query: dict[ActiveQuery, tuple[_Key, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._sides)

    def add(self, query: ActiveQuery, read: ForeignRead) -> None:
        """Match a further read of a query."""
        if len(self._sides) >= _MOST and _key(read) not in self._sides:
            read = ForeignRead(namespace=read.namespace)
        key = _key(read)
        side = self._sides.setdefault(key, _Side(read))
        side.queries[query] = None
        self._by_query[query] = (*(known for known in self._by_query.get(query, ()) if known != key), key)

    def remove(self, query: ActiveQuery) -> None:
        """Forget a query. O(its reads)."""
        for key in self._by_query.pop(query, ()):
            queries = self._sides[key].queries
            del queries[query]
            if not queries:
                del self._sides[key]

    def changed_by(self, image: AfterImage) -> Iterator[ActiveQuery]:
        """Return the queries whose results the write may change, some of them several times. O(sides)."""
        for side in list(self._sides.values()):
            if changes(side.read, image):
                yield from list(side.queries)

    def changes(self, query: ActiveQuery, image: AfterImage) -> bool:
        """Whether the write may change this query's result."""
        return any(changes(self._sides[key].read, image) for key in self._by_query.get(query, ()))


def changes(read: ForeignRead, image: AfterImage) -> bool:
    """Whether a write may change the data that is read; True in doubt."""
    try:
        return _changes(read, image)
    except Exception:  # an unexpected value, a regular expression out of time
        return True


def _changes(read: ForeignRead, image: AfterImage) -> bool:
    fields, matches = read.fields, read.predicate.matches
    if image.changed is not None and fields.untouched(image.changed):
        return False
    gone = image.kind is WriteKind.DELETE
    if not image.before_known or (image.after is None and not gone):
        return True
    before = image.before is not None and matches(image.before)
    after = not gone and image.after is not None and matches(image.after)
    if not before or not after:
        return before or after
    return not image.after_exact or image.before is None or not fields.same(image.before, image.after or {})


def _key(read: ForeignRead) -> _Key:
    return read.predicate.identity, read.fields
