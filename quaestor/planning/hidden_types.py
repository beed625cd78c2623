"""Types that the driver decodes as other types: after-images do not show which records hold such values.

A query for a hidden type is widened. A query for the type it is decoded as is judged by the decoded value: otherwise no such
query would stay exact. A symbol is decoded as a string, undefined as null, a DBPointer as an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from quaestor.query.ast import Node, predicates_of
from quaestor.query.bson_types import BSON_TYPES

_BY_NAME: Final = frozenset({"undefined", "dbPointer", "symbol"})
_BY_CODE: Final[Mapping[int, str]] = {BSON_TYPES[name]: name for name in _BY_NAME}


def hidden_type(root: Node) -> str | None:
    """Return the name of a hidden type in a filter: in `$type`, inside a `$jsonSchema`, or in an `$expr` that tests types and
    names one. None: there is none. O(size)."""
    for predicate in predicates_of(root):
        match predicate.operator:
            case "$type":
                type_name = next((_BY_CODE[code] for code in predicate.operand if code in _BY_CODE), None)
            case "$jsonSchema":
                type_name = _named(named for key, named in _members(predicate.operand) if key == "bsonType")
            case "$expr":
                members = list(_members({"": predicate.operand}))
                asks = any(key == "$type" for key, _ in members)
                type_name = _named(named for _, named in members) if asks else None
            case _:
                type_name = None
        if type_name is not None:
            return type_name
    return None


def _members(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Iterate over every field at any depth with its value; elements of an array have the name of the array's field."""
    waiting: list[tuple[str, Any]] = list(document.items())
    while waiting:
        key, value = waiting.pop()
        yield key, value
        if isinstance(value, Mapping):
            waiting.extend(value.items())
        elif isinstance(value, list | tuple):
            waiting.extend((key, item) for item in value)


def _named(values: Iterator[Any]) -> str | None:
    return next((value for value in values if isinstance(value, str) and value in _BY_NAME), None)
