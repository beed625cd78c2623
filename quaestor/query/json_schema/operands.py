"""Checks of the form of a keyword's value. Each function raises MalformedQueryError, in mongod's words, otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions.kinds import NUMERIC, as_mapping, is_string, kind_of
from quaestor.query.expressions.numeric import whole_number


def number(keyword: str, value: Any) -> Any:
    if kind_of(value) not in NUMERIC:
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' must be a number")
    return value


def length(keyword: str, value: Any) -> int:
    """Return a whole number that is not negative."""
    if kind_of(value) not in NUMERIC:
        raise MalformedQueryError(f"Expected a number in: {keyword}: {value}")
    whole = whole_number(value)
    if whole is None:
        raise MalformedQueryError(f"Expected an integer: {keyword}: {value}")
    if whole < 0:
        raise MalformedQueryError(f"Expected a non-negative number in: {keyword}: {value}")
    return whole


def boolean(keyword: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' must be a boolean")
    return value


def text(keyword: str, value: Any) -> str:
    if not is_string(value):
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' must be a string")
    return value


def document(keyword: str, value: Any) -> Mapping[str, Any]:
    if kind_of(value) != "object":
        raise MalformedQueryError(
            f"$jsonSchema keyword '{keyword}' must be an object, but found an element of type {kind_of(value)}"
        )
    return as_mapping(value)


def documents(keyword: str, value: Any) -> Sequence[Mapping[str, Any]]:
    """Return an array of documents with at least one member."""
    if kind_of(value) != "array":
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' must be an array")
    if not value:
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' must be a non-empty array")
    return [document(keyword, member) for member in value]


def names(keyword: str, value: Any) -> Sequence[str]:
    """Return an array of different strings with at least one member."""
    if kind_of(value) != "array":
        raise MalformedQueryError(
            f"$jsonSchema keyword '{keyword}' must be an array, but found an element of type {kind_of(value)}"
        )
    if not value:
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' cannot be an empty array")
    for member in value:
        if not is_string(member):
            raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' must be an array of strings, found {member!r}")
    if len(set(value)) != len(value):
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' array cannot contain duplicate values")
    members: Sequence[str] = value
    return members
