"""`type` and `bsonType`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions.kinds import NUMERIC, TYPE_CODES, is_string, kind_of
from quaestor.query.json_schema.checks import Check, Context, Keyword

_JSON_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "array": frozenset({"array"}),
    "boolean": frozenset({"bool"}),
    "null": frozenset({"null"}),
    "number": NUMERIC,
    "object": frozenset({"object"}),
    "string": frozenset({"string"}),
}
_BSON_TYPES: Final[Mapping[str, frozenset[str]]] = {
    **{name: frozenset({name}) for name in TYPE_CODES if name != "missing"},
    "number": NUMERIC,
}


def _type(keyword: str, value: Any, context: Context) -> Check:
    if "type" in context.schema and "bsonType" in context.schema:
        raise MalformedQueryError("Cannot specify both $jsonSchema keywords 'type' and 'bsonType'")
    known = _JSON_TYPES if keyword == "type" else _BSON_TYPES
    allowed: set[str] = set()
    for name in _names(keyword, value):
        if name == "integer":
            raise MalformedQueryError("$jsonSchema type 'integer' is not currently supported.")
        if name not in known:
            raise MalformedQueryError(f"Unknown type name alias: {name}")
        allowed |= known[name]
    kinds = frozenset(allowed)
    return lambda value: kind_of(value) in kinds


def _names(keyword: str, value: Any) -> list[str]:
    if is_string(value):
        return [value]
    if kind_of(value) != "array":
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' must be either a string or an array of strings")
    if not value:
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' must name at least one type")
    for member in value:
        if not is_string(member):
            raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' array elements must be strings")
    if len(set(value)) != len(value):
        raise MalformedQueryError(f"$jsonSchema keyword '{keyword}' has a duplicate value")
    return list(value)


KEYWORDS: Final[Mapping[str, Keyword]] = {"type": _type, "bsonType": _type}
