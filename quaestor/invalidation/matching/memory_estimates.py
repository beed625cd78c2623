"""Memory estimates of a node's objects, in bytes: computed from their sizes, never measured at run time.

The figures are calibrated with nodes of 20,000 queries of each kind, one registration a query. The growth of their process is
within a fifth of these estimates. The estimates are too high where queries share a predicate or index a long one whole. Each
figure covers the object, its slots in dictionaries and indexes, and its part of Python's allocator. The functions are pure and
read only what never changes, so a refund always equals its charge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.invalidation.matching.entities import ActiveQuery, Filter, LiveRegistration
from quaestor.planning.access_entries import Access, Entry, Literals

_FILTER: Final = 420
"""Filter, its identity, its entries in the index and in the namespace."""
_UNINDEXED: Final = 1_500
"""Compiled form of a filter that every write tries."""
_SOURCE: Final = 1.0
"""Bytes per byte of a filter's document, which is kept as BSON."""
_COMPILED: Final = 12.0
"""Bytes per byte of the document of a filter that is kept compiled."""
_PREDICATE: Final = 600
"""Predicate of a subscribed query's filter that is kept compiled, beside the bytes for its document."""
_LONG_PREDICATE: Final = 4_000
"""Such a predicate with an expression, a schema, or a pattern of the engine with the time limit."""
_LONG_COMPILED: Final = 4.0
"""Bytes per byte of the document of such a filter with such a predicate: equal schemas share their compiled form."""
_ENTRY: Final = 90
"""Further entry of a filter in the index: a value of an $in, a branch of a disjunction."""
_TEXT: Final = 300
"""Further text among those of which a regular expression requires one."""
_QUERY: Final = 230
_REGISTRATION: Final = 330
_MEMBER: Final = 120
"""Member's hash, in the registration and in the namespace."""
_BOUNDARY: Final = 200
_SIDE: Final = 700
"""Side of a subscribed query, its token, its entries in side and namespace."""
_WATCH: Final = 1_900
"""Watch of the clock: its condition, its compiled filter, its entries in the index and on the wheel."""
PASSING: Final = 420
"""Instant of a record written since, in its watch, by record and on the wheel."""
SIDE_MEMBER: Final = 120
"""Member's hash, in the side and in the namespace."""


def filter_bytes(item: Filter) -> int:
    """Return the bytes of a predicate, independent of the number of queries that share it."""
    if item.access is None:
        return _FILTER + _UNINDEXED + int(_COMPILED * len(item.source))
    return _FILTER + int(_SOURCE * len(item.source)) + access_bytes(item.access)


def access_bytes(access: Access) -> int:
    """Return the bytes of a filter's entries in the index, beyond the first."""
    return sum(map(_entry_bytes, getattr(access, "members", (access,)))) - _ENTRY


def _entry_bytes(entry: Entry) -> int:
    if isinstance(entry, Literals):
        return _ENTRY + _TEXT * (len(entry.texts) - 1)
    return _ENTRY * max(1, len(getattr(entry, "keys", ())), len(getattr(entry, "words", ())))


def query_bytes(query: ActiveQuery) -> int:
    """Return the bytes of an active query with its predicate; each query pays the whole of a shared predicate."""
    return _QUERY + (0 if query.filter is None else filter_bytes(query.filter))


def registration_bytes(live: LiveRegistration) -> int:
    """Return the bytes of a registration. O(1)."""
    boundary = 0 if live.boundary is None else _BOUNDARY
    kept = 0 if live.kept is None else live.kept.bytes
    return _REGISTRATION + boundary + kept + (_MEMBER * len(live.members) if live.members else 0)


def watch_bytes(source: int, paths: int) -> int:
    """Return the bytes of a clock watch without the records written since.

    source: bytes of the filter.
    paths: number of its access paths.
    """
    return _WATCH + int(_COMPILED * source) + _ENTRY * max(0, paths - 1)


def side_bytes(source: int, access: Sequence[Access], *, compiled: int, long: int = 0) -> int:
    """Return the bytes of one side of a subscribed query, without its members; each side pays the whole of a shared predicate.

    source: bytes of the filter.
    access: access paths of the filter.
    compiled: number of predicates of the filter that are kept compiled.
    long: number of these that may take long.
    """
    if not access:
        return _SIDE + _FILTER + _UNINDEXED + int(_COMPILED * source)
    form = 0
    if compiled:
        form = _PREDICATE * compiled + _LONG_PREDICATE * long + int((_LONG_COMPILED if long else _COMPILED) * source)
    return _SIDE + _FILTER + int(_SOURCE * source) + _ENTRY * (len(access) - 1) + form
