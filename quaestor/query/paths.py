"""The values that a dotted path reaches in a document, by the rules of mongod's matcher.

A path leads through embedded documents. In an array on the way every element that is a document is entered. A component that is
an array index also selects that element. In an array at the end the elements are reached one by one, and then the array itself.
With `whole_arrays=True` only the array itself is reached, for `$size` and `$elemMatch`.

An absent field is reached as MISSING. The predicate is evaluated on MISSING once for a document, and once for each embedded
document of an array that lacks the field. Elements that are neither documents nor selected by index are skipped. The manual
describes this under "Query an Array of Embedded Documents".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bson import DBRef

from quaestor.query.bson_order import ARRAY, MISSING, OBJECT, bracket_of

Parts = tuple[str, ...]
Test = Callable[[Any], bool]
Matcher = Callable[[Mapping[str, Any]], bool]

_NO_INDEX: Final = -1


def split(path: str) -> Parts:
    """Return the path's components. The empty path names the field whose name is empty."""
    return tuple(path.split("."))


def is_array(value: Any) -> bool:
    return value.__class__ is list or (value.__class__ is not dict and bracket_of(value.__class__) == ARRAY)


def is_document(value: Any) -> bool:
    return value.__class__ is dict or (value.__class__ is not list and bracket_of(value.__class__) == OBJECT)


def as_document(value: Any) -> Mapping[str, Any]:
    """Return an embedded document as a mapping: a DBRef as its original document, an array keyed by position."""
    kind = value.__class__
    if kind is dict:
        return value  # type: ignore[no-any-return]
    if issubclass(kind, DBRef):
        return value.as_doc()  # type: ignore[no-any-return]
    if is_array(value):
        return {str(position): element for position, element in enumerate(value)}
    return value  # type: ignore[no-any-return]


def reached(document: Mapping[str, Any], path: str, *, whole_arrays: bool = False) -> list[Any]:
    """Return every value that `path` reaches, in mongod's order, with MISSING where the field is absent.

    whole_arrays: an array at the end is reached as one value, its elements are not.
    """
    values: list[Any] = []

    def collect(value: Any) -> bool:
        values.append(value)
        return False

    any_reached(document, split(path), collect, whole_arrays)
    return values


def any_reached(document: Any, parts: Parts, test: Test, whole_arrays: bool) -> bool:
    """Whether `test` holds for any value reached; stops at the first that passes. O(values reached)."""
    last = len(parts) - 1
    value: Any = document
    for position, name in enumerate(parts):
        value = as_document(value).get(name, MISSING)
        if is_array(value):
            return _any_in_array(value, parts[position + 1 :], test, whole_arrays)
        if position == last:
            break
        if not is_document(value):
            value = MISSING
            break
    return test(value)


def _any_in_array(array: list[Any], rest: Parts, test: Test, whole_arrays: bool) -> bool:
    # A trailing dot ("a.") ends the path at the array, as in mongod.
    if not rest or rest == ("",):
        if not whole_arrays:
            for element in array:
                if test(element):
                    return True
        return test(array)
    index = _array_index(rest[0])
    for position, element in enumerate(array):
        if is_document(element):
            if any_reached(element, rest, test, whole_arrays):
                return True
            if position == index and (
                test(element) if len(rest) == 1 else any_reached(element, rest[1:], test, whole_arrays)
            ):
                return True
        elif position == index:
            if len(rest) == 1:
                if test(element):
                    return True
            elif is_array(element) and _any_in_array(element, rest[1:], test, whole_arrays):
                return True
    return False


def _array_index(name: str) -> int:
    """Return the position that a component selects, or -1: "0", "10", but not "01"."""
    if name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"):
        return int(name)
    return _NO_INDEX


def matcher(path: str, test: Test, *, whole_arrays: bool = False) -> Matcher:
    """Return a function of a document: whether `test` holds for any value that `path` reaches.

    Documents without arrays on the path take the short way; all others go through `any_reached`.
    """
    parts = split(path)
    if len(parts) == 1:
        return _field_of_whole_array(path, test) if whole_arrays else _field(path, test)
    head, *middle, last = parts

    def nested(document: Mapping[str, Any]) -> bool:
        value: Any = document.get(head)
        for name in middle:
            if value.__class__ is not dict:
                return any_reached(document, parts, test, whole_arrays)
            value = value.get(name)
        if value.__class__ is not dict:
            return any_reached(document, parts, test, whole_arrays)
        value = value.get(last, MISSING)
        if value.__class__ is list and not whole_arrays:
            for element in value:
                if test(element):
                    return True
        return test(value)

    return nested


def _field(name: str, test: Test) -> Matcher:
    def field(document: Mapping[str, Any]) -> bool:
        value = document.get(name, MISSING)
        if value.__class__ is list:
            for element in value:
                if test(element):
                    return True
        return test(value)

    return field


def _field_of_whole_array(name: str, test: Test) -> Matcher:
    def field(document: Mapping[str, Any]) -> bool:
        return test(document.get(name, MISSING))

    return field
