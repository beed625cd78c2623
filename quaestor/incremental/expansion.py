"""Expansion of one row into several: `$unwind`, and the values of a distinct.

The parts of a row are identified by their elements. An element that is a document with an `_id` is identified by that, so a
joined record keeps its identity when others come before it. Any other element is identified by its position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bson import Int64

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.incremental.changes import UNKNOWN, Change, Row, Unknown
from quaestor.query.bson_order import MISSING, order_key
from quaestor.query.paths import is_array


class Part(NamedTuple):
    """Part of a row: one of the rows that it becomes.

    key, id: identity among its siblings.
    """

    key: Hashable
    id: Any
    row: Row


class ExpansionStage:
    """Stage that expands rows. Remembers the keys of each row's parts, unless the input holds the row before."""

    __slots__ = ("_expand", "_remembered")

    def __init__(self, expand: Callable[[Row], list[Part]]) -> None:
        self._expand = expand
        self._remembered: dict[Hashable, dict[Hashable, Any]] = {}

    def feed(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes of the parts of these rows."""
        return [part for change in changes for part in self._parts(change)]

    def holds(self, key: Hashable) -> bool:
        """Whether the parts of the row with this key are remembered."""
        return key in self._remembered

    def _parts(self, change: Change) -> Iterator[Change]:
        now = {part.key: part for part in self._expand(change.after)} if change.after is not None else {}
        if isinstance(change.before, Unknown):
            gone = self._remembered.pop(change.key, {})
            if now:
                self._remembered[change.key] = {part.key: part.id for part in now.values()}
            for key, part_id in gone.items():
                if key not in now:
                    yield Change((change.key, key), (change.id, part_id), UNKNOWN, None)
            for part in now.values():
                yield Change((change.key, part.key), (change.id, part.id), UNKNOWN, part.row)
            return
        then = {part.key: part for part in self._expand(change.before)} if change.before is not None else {}
        for key, part in then.items():
            if key not in now:
                yield Change((change.key, key), (change.id, part.id), part.row, None)
        for key, part in now.items():
            before = then[key].row if key in then else None
            yield Change((change.key, key), (change.id, part.id), before, part.row)


def unwind(argument: Any) -> Callable[[Row], list[Part]]:
    """Compile the argument of `$unwind`. Raises MalformedQueryError or UnsupportedQueryError."""
    options = argument if isinstance(argument, Mapping) else {"path": argument}
    path, index = options.get("path"), options.get("includeArrayIndex")
    preserve = options.get("preserveNullAndEmptyArrays", False)
    if not isinstance(path, str) or not path.startswith("$") or len(path) < 2 or path.startswith("$$"):
        raise MalformedQueryError(f"the path of $unwind must be a field path with a leading dollar, not {path!r}")
    if set(options) - {"path", "includeArrayIndex", "preserveNullAndEmptyArrays"} or not isinstance(preserve, bool):
        raise MalformedQueryError(f"unknown or mistyped options of $unwind: {argument!r}")
    if index is not None and (not isinstance(index, str) or not index or index.startswith("$")):
        raise MalformedQueryError(f"includeArrayIndex must name a field, not {index!r}")
    if index is not None and "." in index:
        raise UnsupportedQueryError("$unwind with an embedded includeArrayIndex")
    names = tuple(path[1:].split("."))
    if "" in names:
        raise MalformedQueryError(f"the path of $unwind has an empty component: {path!r}")

    def expand(row: Row) -> list[Part]:
        value = _at(row, names)
        if not is_array(value):
            if value is MISSING or value is None:
                return [Part(None, None, _indexed(row, index, None))] if preserve else []
            return [Part(None, None, _indexed(row, index, None))]
        if not value:
            return [Part(None, None, _indexed(_with(row, names, MISSING), index, None))] if preserve else []
        seen: Counter[Hashable] = Counter()
        return [_part(row, names, element, position, seen, index) for position, element in enumerate(value)]

    return expand


def _part(
    row: Row, names: Sequence[str], element: Any, position: int, seen: Counter[Hashable], index: str | None
) -> Part:
    identified = isinstance(element, Mapping) and "_id" in element
    part_id = element["_id"] if identified else position
    base = (identified, order_key(part_id))
    seen[base] += 1
    unwound = _indexed(_with(row, names, element), index, Int64(position))
    return Part((*base, seen[base]), part_id if seen[base] == 1 else [part_id, seen[base]], unwound)


def _at(row: Row, names: Sequence[str]) -> Any:
    value: Any = row
    for name in names:
        value = value.get(name, MISSING) if isinstance(value, Mapping) else MISSING
    return value


def _with(row: Row, names: Sequence[str], value: Any) -> Row:
    """Return the row with another value at the path, which exists; MISSING removes it."""
    name, *rest = names
    if rest:
        return {**row, name: _with(row[name], rest, value)}
    if value is MISSING:
        return {other: member for other, member in row.items() if other != name}
    return {**row, name: value}


def _indexed(row: Row, name: str | None, position: Int64 | None) -> Row:
    return row if name is None else {**row, name: position}


def distinct_values(path: str) -> Callable[[Row], list[Part]]:
    """Compile a `distinct`: its values in a record, as rows {value: ...}, each once. Manual: distinct.

    An array at the end of the path gives its elements. An array on the way is walked element by element or by position.
    """
    names = tuple(path.split("."))

    def expand(row: Row) -> list[Part]:
        parts: dict[Hashable, Part] = {}
        for value in _distinct(row, names):
            key = order_key(value)
            parts.setdefault(key, Part(key, value, {"value": value}))
        return list(parts.values())

    return expand


def _distinct(value: Any, names: Sequence[str]) -> Iterator[Any]:
    fields: Mapping[str, Any] = (
        {str(position): element for position, element in enumerate(value)} if is_array(value) else value
    )
    whole = ".".join(names)
    if whole in fields:
        member = fields[whole]
        yield from member if is_array(member) else (member,)
        return
    if len(names) == 1:
        return
    below, rest = fields.get(names[0], MISSING), names[1:]
    if isinstance(below, Mapping):
        yield from _distinct(below, rest)
    elif is_array(below):
        if rest[0].isascii() and rest[0].isdigit():
            yield from _distinct(below, rest)
        else:
            for element in below:
                if isinstance(element, Mapping) or is_array(element):
                    yield from _distinct(element, rest)
