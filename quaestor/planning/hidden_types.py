"""Types that the driver hides, decoding them as another: no after-image tells which records hold such values.

A query that asks for one is widened. One that asks for the type it is decoded as (a symbol arrives as a string, undefined as
null, a DBPointer as an object) is judged by what arrives: no such query would be left exact otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from quaestor.query.ast import Conjunction, Disjunction, Negation, Node, Predicate
from quaestor.query.bson_types import BSON_TYPES

_BY_NAME: Final = frozenset({"undefined", "dbPointer", "symbol"})
_BY_CODE: Final[Mapping[int, str]] = {BSON_TYPES[name]: name for name in _BY_NAME}


def hidden_type(root: Node) -> str | None:
    """The name of a hidden type that a filter asks for: by `$type`, inside a `$jsonSchema`, or in an `$expr` that asks for types
    and names one. None: of none. O(size)."""
    for predicate in _predicates(root):
        match predicate.operator:
            case "$type":
                found = next((_BY_CODE[code] for code in predicate.operand if code in _BY_CODE), None)
            case "$jsonSchema":
                found = _named(named for key, named in _members(predicate.operand) if key == "bsonType")
            case "$expr":
                members = list(_members({"": predicate.operand}))
                asks = any(key == "$type" for key, _ in members)
                found = _named(named for _, named in members) if asks else None
            case _:
                found = None
        if found is not None:
            return found
    return None


def _predicates(root: Node) -> Iterator[Predicate]:
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Conjunction | Disjunction):
            nodes.extend(node.members)
        elif isinstance(node, Negation):
            nodes.append(node.member)
        elif isinstance(node, Predicate):
            yield node
            if node.operator == "$elemMatch":
                nodes.append(node.operand)


def _members(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every field at any depth with its value; what lies in an array has the name of the array's field."""
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
