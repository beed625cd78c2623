"""Variables of a command (`let`), put into its filter where they are constants. The result is an ordinary filter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import bson

from quaestor.model import Document, Operation, Query

_CONSTANTS: Final = (
    *(int, float, bool, type(None), bytes, str),
    *(bson.ObjectId, bson.Decimal128, bson.Timestamp, datetime, UUID),
)
_BINDING: Final = frozenset({"$let", "$map", "$filter", "$reduce"})
"""Expressions that bind variables of their own, perhaps with the same name."""


def with_constants(query: Query) -> Query:
    """Return a find or count without variables, if all are constants that only its filter reads; else the query as it is."""
    if query.let is None or query.operation is Operation.AGGREGATE:
        return query
    known = _constants(query.let)
    if known is None or _mentions(query.projection) or _binds(query.filter):
        return query
    condition: Document = _put(query.filter, known, within=False)
    return query if _mentions_any(condition, known) else replace(query, filter=condition, let=None)


def _constants(let: Document) -> Mapping[str, Any] | None:
    plain = all(isinstance(value, _CONSTANTS) and not str(value).startswith("$") for value in let.values())
    return let if plain else None


def _put(value: Any, known: Mapping[str, Any], *, within: bool) -> Any:
    """Put constants in place of variables. within: inside of `$expr`, where a text may name a variable."""
    if isinstance(value, Mapping):
        return {
            name: value[name]
            if name == "$literal" and within
            else _put(value[name], known, within=within or name == "$expr")
            for name in value
        }
    if isinstance(value, list | tuple):
        return [_put(member, known, within=within) for member in value]
    if within and isinstance(value, str) and value[:2] == "$$" and value[2:] in known:
        return {"$literal": known[value[2:]]}
    return value


def _mentions(value: Any) -> bool:
    """Whether a text in the value may name a variable."""
    if isinstance(value, Mapping):
        return any(map(_mentions, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_mentions, value))
    return isinstance(value, str) and value.startswith("$$")


def _mentions_any(value: Any, names: Collection[str]) -> bool:
    """Whether one of these variables remains, for a field below it."""
    if isinstance(value, Mapping):
        return any(name != "$literal" and _mentions_any(member, names) for name, member in value.items())
    if isinstance(value, list | tuple):
        return any(_mentions_any(member, names) for member in value)
    return isinstance(value, str) and value.startswith("$$") and value[2:].split(".", 1)[0] in names


def _binds(value: Any) -> bool:
    if isinstance(value, Mapping):
        return not _BINDING.isdisjoint(value) or any(map(_binds, value.values()))
    return isinstance(value, list | tuple) and any(map(_binds, value))
