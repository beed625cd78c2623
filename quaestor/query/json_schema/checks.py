"""A compiled schema: a function that decides whether a value is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quaestor.query.bson_order import ARRAY, NAN, OBJECT, Key, order_key
from quaestor.query.expressions.kinds import as_mapping, kind_of

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of a keyword, which it may need besides its own value.

    schema: the schema around it.
    compile: compiles a schema of a nested value.
    same: compiles a schema of the same value.
    whole: compiles a schema of a whole document, as at_top.
    at_top: the value is a whole document, so keywords of other types never apply and are skipped.
    """

    schema: Mapping[str, Any]
    compile: Callable[[Mapping[str, Any]], Check]
    same: Callable[[Mapping[str, Any]], Check]
    whole: Callable[[Mapping[str, Any]], Check]
    at_top: bool


Keyword = Callable[[str, Any, Context], Check | None]
"""Compiles one keyword from its name, its value, and the context. None: it checks nothing."""


def always(value: Any) -> bool:
    return True


def all_of(checks: list[Check]) -> Check:
    """Return a check that holds if every check holds."""
    match checks:
        case []:
            return always
        case [only]:
            return only
        case [first, second]:
            return lambda value: first(value) and second(value)
    members = tuple(checks)
    return lambda value: all(check(value) for check in members)


def unordered_key(value: Any) -> Key:
    """Return a key like order_key, but equal for documents with the same fields in another order."""
    kind = kind_of(value)
    if kind == "object":
        return OBJECT, tuple(sorted((name, unordered_key(member)) for name, member in as_mapping(value).items()))
    if kind == "array":
        return ARRAY, tuple(unordered_key(member) for member in value)
    return order_key(value)


def is_nan(value: Any) -> bool:
    """Whether a number is NaN."""
    return bool(order_key(value)[0] == NAN)
