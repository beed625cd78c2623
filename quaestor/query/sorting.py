"""The order in which mongod returns documents. Manual: cursor.sort(), Comparison/Sort Order.

Values of all types are ordered by `bson_order`; a missing field sorts as null. Of an array the least element counts,
descending the greatest; an empty array is below null. `sort_keys.py` describes how several fields of one array combine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, total_ordering
from typing import Any, Final, TypeVar

from bson import Decimal128

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.bson_order import Key, order_key
from quaestor.query.paths import Parts, split
from quaestor.query.sort_keys import rows

SortKey = tuple[Any, ...]
"""Compare with `<`, `==` and so on: smaller sorts first, whatever the directions. Hashable."""

Document = TypeVar("Document", bound=Mapping[str, Any])

MOST_FIELDS: Final = 32
DEEPEST: Final = 200


@total_ordering
class Descending:
    """An order key that compares in reverse."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and self.key == other.key

    def __lt__(self, other: Descending) -> bool:
        return other.key < self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Descending({self.key!r})"


def sort_documents(documents: Iterable[Document], sort: Any, *, by_id: bool = False) -> list[Document]:
    """Return the documents in the order of `sort`; equal ones keep their order, or are ordered by `_id` (by_id).

    sort: ((path, 1 | -1), ...), a list of such pairs, or a mapping; empty: only by_id applies. O(n log n).

    Raises:
        MalformedQueryError: mongod would refuse the sort, or fail on these documents (parallel arrays).
        UnsupportedQueryError: a `{$meta: ...}` sort.
    """
    return sorted(documents, key=sort_key_function(sort, by_id=by_id))


def sort_key(document: Mapping[str, Any], sort: Any, *, by_id: bool = False) -> SortKey:
    """Return the document's place in the order: `sort_key(a, s) < sort_key(b, s)` iff a comes before b. Raises as
    `sort_documents`."""
    try:
        function = _prepared(sort, by_id)
    except TypeError:  # a list, or a {$meta: ...}
        function = sort_key_function(sort, by_id=by_id)
    return function(document)


def sort_key_function(sort: Any, *, by_id: bool = False) -> Callable[[Mapping[str, Any]], SortKey]:
    """Return `sort_key` prepared for one sort, for placing many documents. Raises as `sort_documents`."""
    return _function(parse_sort(sort), by_id)


@lru_cache(maxsize=1024)
def _prepared(sort: Any, by_id: bool) -> Callable[[Mapping[str, Any]], SortKey]:
    return sort_key_function(sort, by_id=by_id)


def parse_sort(sort: Any) -> tuple[tuple[str, int], ...]:
    """Return ((path, 1 or -1), ...) from a sort of find, aggregate or pymongo. Raises as `sort_documents`."""
    if not sort:
        return ()
    pairs: Sequence[tuple[Any, Any]] = tuple(sort.items()) if isinstance(sort, Mapping) else tuple(sort)
    if len(pairs) > MOST_FIELDS:
        raise MalformedQueryError(f"cannot sort by {len(pairs)} fields: at most {MOST_FIELDS} are allowed")
    return tuple((_path(path), _direction(path, direction)) for path, direction in pairs)


def _path(path: Any) -> str:
    if not isinstance(path, str) or not path:
        raise MalformedQueryError(f"cannot sort by {path!r}: a path is needed")
    if any(not part or part.startswith("$") for part in path.split(".")):
        raise MalformedQueryError(f"cannot sort by {path!r}: its components must not be empty or start with a dollar")
    if path.count(".") >= DEEPEST:
        raise MalformedQueryError(f"cannot sort by a path of more than {DEEPEST} components: {path[:40]!r}...")
    return path


def _direction(path: Any, direction: Any) -> int:
    if isinstance(direction, Mapping):
        if set(direction) != {"$meta"}:
            raise MalformedQueryError(f"the direction of {path!r} must be 1, -1 or {{$meta: ...}}, not {direction!r}")
        raise UnsupportedQueryError(f"sort by {{$meta: {direction['$meta']!r}}}")
    number = direction.to_decimal() if isinstance(direction, Decimal128) else direction
    if isinstance(number, bool) or number not in (1, -1):
        raise MalformedQueryError(f"the direction of {path!r} must be 1 or -1, not {direction!r}")
    return int(number)


@lru_cache(maxsize=1024)
def _function(sort: tuple[tuple[str, int], ...], by_id: bool) -> Callable[[Mapping[str, Any]], SortKey]:
    if by_id and all(path != "_id" for path, _ in sort):
        sort = (*sort, ("_id", 1))
    paths = tuple(split(path) for path, _ in sort)
    ascending = tuple(direction > 0 for _, direction in sort)
    if all(len(parts) == 1 for parts in paths):
        return _flat(tuple((parts[0], up) for parts, up in zip(paths, ascending, strict=True)), paths, ascending)
    return _nested(paths, ascending)


def _nested(paths: tuple[Parts, ...], ascending: tuple[bool, ...]) -> Callable[[Mapping[str, Any]], SortKey]:
    """Return a sort key that goes through embedded documents, and falls back at anything else on the way."""
    columns = tuple((parts[:-1], parts[-1], up) for parts, up in zip(paths, ascending, strict=True))

    def key(document: Mapping[str, Any]) -> SortKey:
        parts: list[Any] = []
        for way, last, up in columns:
            value: Any = document
            for name in way:
                value = value.get(name)
                if value.__class__ is not dict:
                    return _least_row(document, paths, ascending)
            value = value.get(last)
            if value.__class__ is list:
                return _least_row(document, paths, ascending)
            part = order_key(value)
            parts.append(part if up else Descending(part))
        return tuple(parts)

    return key


def _flat(
    fields: tuple[tuple[str, bool], ...], paths: tuple[Parts, ...], ascending: tuple[bool, ...]
) -> Callable[[Mapping[str, Any]], SortKey]:
    """Return a sort key for paths without dots, which falls back at arrays."""

    def key(document: Mapping[str, Any]) -> SortKey:
        parts: list[Any] = []
        for name, up in fields:
            value = document.get(name)
            if value.__class__ is list:
                return _least_row(document, paths, ascending)
            part = order_key(value)
            parts.append(part if up else Descending(part))
        return tuple(parts)

    return key


def _least_row(document: Mapping[str, Any], paths: tuple[Parts, ...], ascending: tuple[bool, ...]) -> SortKey:
    return min(
        tuple(
            part if up else Descending(part)
            for part, up in zip((order_key(value) for value in row), ascending, strict=True)
        )
        for row in rows(document, paths)
    )
