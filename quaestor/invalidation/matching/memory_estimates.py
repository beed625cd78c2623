"""Memory estimates of a node's objects, in bytes: counted from their sizes, never measured while running.

Calibrated with nodes of 20,000 queries of each kind, one registration a query: what their process grew by is within a
fifth of these estimates; where queries share a predicate, or a long one is indexed whole, they are too high. Each figure
covers the object, its slots in the dictionaries and index structures, and its part of Python's allocator. They are pure
functions of what does not change, so what is given back is what was charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.invalidation.matching.entities import ActiveQuery, Filter, LiveRegistration
from quaestor.planning.access_entries import Access, Entry, Literals

_FILTER: Final = 420
"""A filter, its identity, its entries in the index and in the namespace."""
_UNINDEXED: Final = 1_500
"""A filter that every write tries is kept compiled."""
_SOURCE: Final = 1.0
"""Bytes per byte of the filter's document: it is kept as BSON."""
_COMPILED: Final = 12.0
"""The same, of one that is kept compiled."""
_ENTRY: Final = 90
"""Each further entry of a filter in the index: the values of an $in, the branches of a disjunction."""
_TEXT: Final = 300
"""Each further text of which a regular expression requires one."""
_QUERY: Final = 230
_REGISTRATION: Final = 330
_MEMBER: Final = 120
"""A member's hash, in the registration and in the namespace."""
_BOUNDARY: Final = 200
_SIDE: Final = 700
"""A subscribed query's side, its token, its entries here and there."""
SIDE_MEMBER: Final = 120
"""A member's hash, in the side and in the namespace."""


def filter_bytes(item: Filter) -> int:
    """Bytes of a predicate, however many queries share it."""
    if item.access is None:
        return _FILTER + _UNINDEXED + int(_COMPILED * len(item.source))
    return _FILTER + int(_SOURCE * len(item.source)) + access_bytes(item.access)


def access_bytes(access: Access) -> int:
    """Bytes of a filter's entries in the index, beyond the first."""
    return sum(map(_entry_bytes, getattr(access, "members", (access,)))) - _ENTRY


def _entry_bytes(entry: Entry) -> int:
    if isinstance(entry, Literals):
        return _ENTRY + _TEXT * (len(entry.texts) - 1)
    return _ENTRY * max(1, len(getattr(entry, "keys", ())), len(getattr(entry, "words", ())))


def query_bytes(query: ActiveQuery) -> int:
    """Bytes of an active query with the predicate that it uses; of a shared one every query pays the whole."""
    return _QUERY + (0 if query.filter is None else filter_bytes(query.filter))


def registration_bytes(live: LiveRegistration) -> int:
    """Bytes of one registration. O(1)."""
    boundary = 0 if live.boundary is None else _BOUNDARY
    kept = 0 if live.kept is None else live.kept.bytes
    return _REGISTRATION + boundary + kept + (_MEMBER * len(live.members) if live.members else 0)


def side_bytes(source: int, access: Sequence[Access]) -> int:
    """Bytes of one side of a subscribed query, without its members; of a shared predicate each pays all.

    source: bytes of the filter.
    access: its access paths.
    """
    if not access:
        return _SIDE + _FILTER + _UNINDEXED + int(_COMPILED * source)
    return _SIDE + _FILTER + int(_SOURCE * source) + _ENTRY * (len(access) - 1)
