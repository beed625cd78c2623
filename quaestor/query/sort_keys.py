"""The rows of values of a document in a sort by several paths. The first row in the order counts.

Without arrays there is one row. An array gives one row for each element, and all paths through it take their values from the
same element; mongod fails on paths through two different arrays. A compound multikey index treats the document the same way, so
sorting with and without an index agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.bson_order import MISSING
from quaestor.query.paths import Parts, as_document, is_array, is_document

_EMPTY_ARRAY: Final = MISSING
"""The place of an empty array: below null, where no other stored value sorts."""
_DONE: Final[Parts] = ()


class _Indexed:
    """The value that a path's next component selects by position in the array being expanded."""

    __slots__ = ("chosen", "rest", "value")

    def __init__(self, chosen: Any, value: Any, rest: Parts) -> None:
        self.chosen = chosen
        self.value = value
        self.rest = rest


def rows(document: Mapping[str, Any], paths: Sequence[Parts]) -> Iterator[list[Any]]:
    """Iterate over the rows of values that a document is sorted by: one value per path in each row. At least one row.

    Raises:
        MalformedQueryError: two paths go through different arrays, or a component is both a position and a field name.
    """
    yield from _expand(document, list(paths), [None] * len(paths), [None] * len(paths))


def _expand(
    document: Mapping[str, Any], rest: list[Parts], values: list[Any], indexed: Sequence[_Indexed | None]
) -> Iterator[list[Any]]:
    array: Any = MISSING
    through: list[int] = []
    by_element = True
    for column, parts in enumerate(rest):
        if not parts:
            continue
        value, rest[column], nested = _next(document, parts, indexed[column])
        if value is MISSING:
            values[column] = None
            rest[column] = _DONE
        elif is_array(value):
            if array is not MISSING and value is not array:
                raise MalformedQueryError("cannot sort with keys that are parallel arrays")
            array = value
            through.append(column)
            by_element = by_element and not nested
        else:
            values[column] = value
    if array is MISSING:
        yield values
        return
    positions = [_indexed(array, parts) if parts else None for parts in rest] if array else [None] * len(rest)
    for element in array or (_EMPTY_ARRAY,):
        row = list(values)
        for column in through:
            if not rest[column]:
                row[column] = element if by_element or not array else array
        entered = as_document(element) if element is not _EMPTY_ARRAY and is_document(element) else {}
        yield from _expand(entered, list(rest), row, positions)


def _next(document: Mapping[str, Any], parts: Parts, indexed: _Indexed | None) -> tuple[Any, Parts, bool]:
    """Return the value at the path or the first array along it, and the rest of the path. The flag tells an array that was
    chosen by its position in another array."""
    if parts[0] in document:
        if indexed is not None:
            raise MalformedQueryError(f"cannot sort: {parts[0]!r} is both a position in an array and a field in it")
        return (*_walk(document, parts), False)
    if indexed is not None:
        return indexed.value, indexed.rest, is_array(indexed.chosen)
    return MISSING, _DONE, False


def _walk(document: Mapping[str, Any], parts: Parts) -> tuple[Any, Parts]:
    value: Any = document
    for position, name in enumerate(parts, start=1):
        value = as_document(value).get(name, MISSING)
        if is_array(value):
            return value, parts[position:]
        if position < len(parts) and not is_document(value):
            return MISSING, _DONE
    return value, _DONE


def _indexed(array: list[Any], parts: Parts) -> _Indexed | None:
    elements = as_document(array)
    if parts[0] not in elements:
        return None
    value, rest = _walk(elements, parts)
    return _Indexed(elements[parts[0]], value, rest)
