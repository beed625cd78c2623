"""Compilation of a schema: one check per keyword, all of which must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import bson
from bson.errors import BSONError

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.encoding import OPTIONS
from quaestor.query.expressions.kinds import kind_of
from quaestor.query.json_schema import (
    array_keywords,
    number_keywords,
    object_keywords,
    string_keywords,
    type_keywords,
    value_keywords,
)
from quaestor.query.json_schema.checks import Check, Context, Keyword, all_of

_KEYWORDS: Final[Mapping[str, Keyword]] = {
    **type_keywords.KEYWORDS,
    **number_keywords.KEYWORDS,
    **string_keywords.KEYWORDS,
    **array_keywords.KEYWORDS,
    **object_keywords.KEYWORDS,
    **value_keywords.KEYWORDS,
}
_NOT_IN_DIALECT: Final = frozenset({"$ref", "$schema", "default", "definitions", "format", "id"})
_ENCRYPTION: Final = frozenset({"encrypt", "encryptMetadata"})
_MOST_BYTES: Final = 8_192
"""Longer schemas are compiled each time, which bounds the memory of kept functions."""


def compile_schema(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    """Compile a schema, as the operand of `$jsonSchema`, to a function that decides whether a document is valid.

    Raises:
        MalformedQueryError: mongod would refuse it: unknown keyword, or a keyword with a value of the wrong shape.
        UnsupportedQueryError: a keyword of client-side encryption, or a property name with a dot, which mongod
            takes for a path.
    The function is pure, its cost grows with the document and the schema. UncertainMatchError is raised when a regular
    expression could not be decided in time. Equal schemas share one function: with the rules of records, every query of an
    endpoint has the same one.
    """
    if kind_of(schema) != "object":
        raise MalformedQueryError(f"$jsonSchema must be an object, not {kind_of(schema)}")
    try:
        encoded = bson.encode(schema, codec_options=OPTIONS)
    except (BSONError, OverflowError, TypeError, ValueError):
        return _compile(schema, at_top=True)  # a value that no driver would send
    return _compile(schema, at_top=True) if len(encoded) > _MOST_BYTES else _of_encoded(encoded)


@lru_cache(maxsize=256)
def _of_encoded(encoded: bytes) -> Check:
    schema: dict[str, Any] = bson.decode(encoded, OPTIONS)
    return _compile(schema, at_top=True)


def _compile(schema: Mapping[str, Any], *, at_top: bool) -> Check:
    context = Context(
        schema=schema,
        compile=lambda nested: _compile(nested, at_top=False),
        same=lambda other: _compile(other, at_top=at_top),
        whole=lambda other: _compile(other, at_top=True),
        at_top=at_top,
    )
    checks: list[Check] = []
    unsupported = None
    for name, value in schema.items():
        if name in _NOT_IN_DIALECT:
            raise MalformedQueryError(f"$jsonSchema keyword '{name}' is not currently supported")
        if name in _ENCRYPTION:
            unsupported = name
            continue
        keyword = _KEYWORDS.get(name)
        if keyword is None:
            raise MalformedQueryError(f"Unknown $jsonSchema keyword: {name}")
        check = keyword(name, value, context)
        if check is not None:
            checks.append(check)
    if unsupported is not None:
        raise UnsupportedQueryError(f"{unsupported} in $jsonSchema belongs to client-side encryption")
    return all_of(checks)
