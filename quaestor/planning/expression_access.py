"""Access paths of `$expr`: conditions that an expression requires of a record, if nothing in it can fail.

An expression compares whole values in the BSON order across types, missing ones included. An array on the path makes the
value an array. Equality with a scalar therefore leads to the expression like a filter's equality. A comparison excludes only
records whose single value is of the same type and on the wrong side. An expression that may raise an error has no access path:
a record on which it fails must not be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.planning.access_combination import all_of, any_of
from quaestor.planning.access_entries import MOST_ENTRIES, RANGED, Access, Equality, Outside, hash_key
from quaestor.query.bson_order import NAN, NULL, is_list, order_key

_TURNED: Final = {"$gt": "$lt", "$gte": "$lte", "$lt": "$gt", "$lte": "$gte", "$eq": "$eq"}
_SAFE: Final = frozenset({*_TURNED, "$ne", "$cmp", "$and", "$or", "$not"})
_SCALARS: Final = RANGED | {NULL, NAN}


def expression_paths(expression: Any) -> list[Access]:
    """Return the alternative access paths of `{$expr: expression}`; empty: no condition that an index knows."""
    return _paths(expression) if _never_fails(expression) else []


def _paths(expression: Any) -> list[Access]:
    name, operand = _operator(expression)
    if not is_list(operand):
        return []
    if name == "$and":
        return all_of(map(_paths, operand))
    if name == "$or":
        return any_of(map(_paths, operand))
    if len(operand) != 2:
        return []
    left, right = operand
    if name == "$in":
        path, members = _path(left), list(right) if is_list(right) else []
        if path is None or not 0 < len(members) <= MOST_ENTRIES or not all(map(_is_scalar, members)):
            return []
        return [Equality(path, tuple(dict.fromkeys(hash_key(_constant(member)) for member in members)))]
    if name not in _TURNED:
        return []
    if _path(left) is None:
        name, left, right = _TURNED[name], right, left
    path = _path(left)
    return [] if path is None or not _is_scalar(right) else _compared(name, path, _constant(right))


def _compared(name: str, path: str, constant: Any) -> list[Access]:
    if name == "$eq":
        return [Equality(path, (hash_key(constant),))]
    key = order_key(constant)
    if key[0] not in RANGED or len(key) != 2:
        return []
    low, high = (key[1], None) if name in ("$gt", "$gte") else (None, key[1])
    return [Outside(path, key[0], low, high, whole=True)]


def _never_fails(expression: Any) -> bool:
    """Whether the expression has a value for every record."""
    if _path(expression) is not None or _is_scalar(expression):
        return True
    name, operand = _operator(expression)
    if name == "$in":
        return (
            is_list(operand)
            and len(operand) == 2
            and is_list(operand[1])
            and all(map(_never_fails, [operand[0], *operand[1]]))
        )
    return name in _SAFE and all(map(_never_fails, operand if is_list(operand) else [operand]))


def _operator(expression: Any) -> tuple[str, Any]:
    if isinstance(expression, Mapping) and len(expression) == 1:
        name, operand = next(iter(expression.items()))
        return name, operand
    return "", None


def _path(expression: Any) -> str | None:
    """Return the path that an expression reads, of the record itself."""
    plain = isinstance(expression, str) and expression[:1] == "$" and expression[1:2] not in ("", "$")
    return expression[1:] if plain and "" not in expression[1:].split(".") else None


def _is_scalar(expression: Any) -> bool:
    if isinstance(expression, str):
        return not expression.startswith("$")
    if isinstance(expression, Mapping):
        name, operand = _operator(expression)
        return name == "$literal" and not isinstance(operand, Mapping) and order_key(operand)[0] in _SCALARS
    return order_key(expression)[0] in _SCALARS


def _constant(expression: Any) -> Any:
    return expression["$literal"] if isinstance(expression, Mapping) else expression
