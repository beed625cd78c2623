"""Values that a find's projection shows: two images of a record that it shows alike are one for the result.

Paths, computed fields, `$slice` and `$elemMatch`; what is not evaluated (positional projections, `$meta`) shows no two images
alike. https://www.mongodb.com/docs/manual/reference/operator/projection/
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final

import bson

from quaestor.errors import QueryError
from quaestor.incremental.projection import projection
from quaestor.model import Document
from quaestor.query.bson_order import MISSING
from quaestor.query.compiled import compile_query
from quaestor.query.encoding import OPTIONS
from quaestor.query.paths import is_array

_Part = Callable[[Any], Any]
"""What is shown of an array, or MISSING."""
_Projected = Callable[[Document], Document]

_ARRAY: Final = "array"


def shows_same(encoded: bytes, before: Document, after: Document) -> bool:
    """Whether a projection shows both records alike.

    encoded: the projection as BSON.
    """
    shown = _compiled(encoded)
    if shown is None:
        return False
    try:
        return bson.encode(shown(before), codec_options=OPTIONS) == bson.encode(shown(after), codec_options=OPTIONS)
    except QueryError:
        return False


@lru_cache(maxsize=1024)
def _compiled(encoded: bytes) -> _Projected | None:
    specification = bson.decode(encoded, codec_options=OPTIONS)
    parts = {name: part for name, value in specification.items() if (part := _part(name, value)) is not None}
    rest: dict[str, Any] | None = specification
    if parts:
        rest = _beside_parts(specification, parts)
        if rest is None:
            return None
    try:
        step = projection(rest) if rest else None
    except QueryError:
        return None

    def shown(record: Document) -> Document:
        row = dict(record) if step is None else dict(step(dict(record), None) or {})
        for name, part in parts.items():
            value = part(record.get(name, MISSING))
            if value is MISSING:
                row.pop(name, None)
            elif name in row:
                row[name] = value
        return row

    return shown


def _beside_parts(specification: Mapping[str, Any], parts: Collection[str]) -> dict[str, Any] | None:
    """What a projection that shows parts of arrays shows besides; None if that is not evaluated.

    With a field that is switched on, or with `$elemMatch` alone, only what is named; with `$slice` alone everything else too.
    """
    others = {name: value for name, value in specification.items() if name not in parts}
    if not all(isinstance(value, bool | int | float) for value in others.values()):
        return None
    switches = {bool(value) for name, value in others.items() if name != "_id"}
    sliced = {_is(specification[name], "$slice") for name in parts}
    if switches == {True} or (not switches and sliced == {False}):
        return {**dict.fromkeys(parts, 1), **others}
    alone = True not in switches and sliced == {True} and not others.get("_id", 0)
    return others if alone else None


def _is(value: Any, operator: str) -> bool:
    return isinstance(value, Mapping) and list(value) == [operator]


def _part(name: str, value: Any) -> _Part | None:
    """What a projection of one field shows of an array; None: it is none that is evaluated here."""
    if "." in name:
        return None
    if _is(value, "$elemMatch"):
        return _first_matching(value["$elemMatch"])
    return _slice(value["$slice"]) if _is(value, "$slice") else None


def _first_matching(condition: Any) -> _Part | None:
    try:
        matches = compile_query({_ARRAY: {"$elemMatch": condition}}).matches
    except QueryError:
        return None

    def first(value: Any) -> Any:
        if not is_array(value):
            return MISSING
        return next(([element] for element in value if matches({_ARRAY: [element]})), MISSING)

    return first


def _slice(argument: Any) -> _Part | None:
    bounds = argument if isinstance(argument, list) else [None, argument]
    if len(bounds) != 2 or not all(
        one is None or (isinstance(one, int) and not isinstance(one, bool)) for one in bounds
    ):
        return None
    skip, number = bounds

    def part(value: Any) -> Any:
        if not is_array(value):
            return value
        if skip is None:
            return value[:number] if number >= 0 else value[number:]
        begin = skip if skip >= 0 else max(0, len(value) + skip)
        return value[begin : begin + number]

    return part
