"""Keywords for values of every type: `enum`, `allOf`, `anyOf`, `oneOf`, `not`; and keywords that only describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions.kinds import kind_of
from quaestor.query.json_schema import operands
from quaestor.query.json_schema.checks import Check, Context, Keyword, all_of, unordered_key


def _enum(keyword: str, value: Any, context: Context) -> Check:
    """Compile `enum`: documents are equal in any order of their fields."""
    if kind_of(value) != "array":
        raise MalformedQueryError(
            f"$jsonSchema keyword 'enum' must be an array, but found an element of type {kind_of(value)}"
        )
    if not value:
        raise MalformedQueryError("$jsonSchema keyword 'enum' cannot be an empty array")
    keys = {unordered_key(member) for member in value}
    if len(keys) != len(value):
        raise MalformedQueryError("$jsonSchema keyword 'enum' array cannot contain duplicate values.")
    return lambda value: unordered_key(value) in keys


def _checks(keyword: str, value: Any, context: Context) -> list[Check]:
    return [context.same(schema) for schema in operands.documents(keyword, value)]


def _all_of(keyword: str, value: Any, context: Context) -> Check:
    return all_of(_checks(keyword, value, context))


def _any_of(keyword: str, value: Any, context: Context) -> Check:
    checks = _checks(keyword, value, context)
    return lambda value: any(check(value) for check in checks)


def _one_of(keyword: str, value: Any, context: Context) -> Check:
    checks = _checks(keyword, value, context)
    return lambda value: sum(check(value) for check in checks) == 1


def _not(keyword: str, value: Any, context: Context) -> Check:
    check = context.same(operands.document(keyword, value))
    return lambda value: not check(value)


def _description(keyword: str, value: Any, context: Context) -> None:
    operands.text(keyword, value)


KEYWORDS: Final[Mapping[str, Keyword]] = {
    "enum": _enum,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "title": _description,
    "description": _description,
}
