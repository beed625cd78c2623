"""Values that a result shows of each of its records: two images that look the same are one for the result.

For a find the shown values are its projection (paths, computed fields, `$slice` and `$elemMatch`). For a pipeline that is a find
they are the results of the stages that change each record. Values that are not evaluated (positional projections, `$meta`, joins)
never make two images look the same.
https://www.mongodb.com/docs/manual/reference/operator/projection/
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import bson
from bson.errors import BSONError
from xxhash import xxh3_128_digest

from quaestor.errors import QueryError, UnsupportedQueryError
from quaestor.model import Document, Operation, Query
from quaestor.query import rows
from quaestor.query.allowance import within_allowance
from quaestor.query.bson_order import MISSING
from quaestor.query.compiled import compile_query
from quaestor.query.encoding import OPTIONS
from quaestor.query.paths import is_array
from quaestor.query.projection import projection

_Part = Callable[[Any], Any]
"""Returns the shown part of an array, or MISSING."""
_Projected = Callable[[Document], Document]

_ARRAY: Final = "array"
_PROJECTION: Final = "projection"
_STAGES: Final = "stages"
_DRESSING: Final = frozenset({"$project", "$set", "$addFields", "$unset"})


def shown_by(query: Query, shaping: Sequence[Document] = ()) -> bytes | None:
    """Return the parts of each record that a query shows, for `shows_same`; empty: the whole record; None: not evaluated.

    shaping: the last stages of a pipeline, which change each record. Under a collation they may compare by it.
    """
    said: dict[str, Any]
    if query.operation is Operation.AGGREGATE:
        said = {_STAGES: list(shaping)} if shaping else {}
    else:
        said = {_PROJECTION: query.projection} if query.projection else {}
    if not said:
        return b""
    if query.collation is not None and query.collation.get("locale") != "simple" and not _only_switches(said):
        return None
    try:
        encoded = bson.encode(said, codec_options=OPTIONS)
    except (BSONError, OverflowError, ValueError, TypeError):  # there is no single BSON form of it
        return None
    return None if _compiled(encoded) is None else encoded


def decided_by_paths(query: Query, shaping: Sequence[Document] = ()) -> bool:
    """Whether the shown values of a record are its fields at some paths: nothing is computed, and no part of an array shown."""
    return _only_switches(query.projection or {} if query.operation is not Operation.AGGREGATE else list(shaping))


def shown_digest(shown: bytes, record: Document) -> bytes | None:
    """Return the digest of the values that a result shows of a record; None: unknown.

    shown: see shown_by.
    """
    show = _compiled(shown)
    if show is None:
        return None
    try:
        return xxh3_128_digest(bson.encode(show(record), codec_options=OPTIONS))
    except QueryError:
        return None


def _only_switches(said: Any) -> bool:
    """Whether nothing is computed: fields are shown or hidden, and no strings are compared."""
    if isinstance(said, Mapping):
        return all(not name.startswith("$") or name in _DRESSING for name in said) and all(
            map(_only_switches, said.values())
        )
    if isinstance(said, list):
        return all(map(_only_switches, said))
    return isinstance(said, bool | int | float | str)


def shows_same(shown: bytes, before: Document, after: Document) -> bool:
    """Whether a result shows both records alike.

    shown: see shown_by.
    """
    show = _compiled(shown)
    if show is None:
        return False
    try:
        return bson.encode(show(before), codec_options=OPTIONS) == bson.encode(show(after), codec_options=OPTIONS)
    except QueryError:
        return False


@lru_cache(maxsize=1024)
def _compiled(encoded: bytes) -> _Projected | None:
    said = bson.decode(encoded, codec_options=OPTIONS)
    try:
        return within_allowance(_dressed(said[_STAGES]) if _STAGES in said else _projected(said[_PROJECTION]))
    except (QueryError, ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError):
        return None


def _dressed(stages: Sequence[Document]) -> _Projected:
    """Compile stages that change each record. Raises UnsupportedQueryError, or any error of a malformed stage."""
    steps = []
    for stage in stages:
        ((name, argument),) = stage.items()
        if name not in _DRESSING:
            raise UnsupportedQueryError(f"{name}: the joined records are in no image of the record")
        steps.append(rows.step(name, argument))

    def shown(record: Document) -> Document:
        row = record
        for step in steps:
            row = step(row, None) or {}
        return row

    return shown


def _projected(specification: Document) -> _Projected:
    """Compile a projection. Raises QueryError."""
    parts = {name: part for name, value in specification.items() if (part := _part(name, value)) is not None}
    rest = _beside_parts(specification, parts) if parts else specification
    step = projection(rest) if rest else None

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


def _beside_parts(specification: Mapping[str, Any], parts: Collection[str]) -> dict[str, Any]:
    """Return the rest of a projection that shows parts of arrays. Raises UnsupportedQueryError if that is not evaluated.

    With a field that is switched on, or with `$elemMatch` alone, only named fields show; with `$slice` alone all others too.
    """
    others = {name: value for name, value in specification.items() if name not in parts}
    if not all(isinstance(value, bool | int | float) for value in others.values()):
        raise UnsupportedQueryError("parts of arrays beside computed fields")
    switches = {bool(value) for name, value in others.items() if name != "_id"}
    sliced = {_is(specification[name], "$slice") for name in parts}
    if switches == {True} or (not switches and sliced == {False}):
        return {**dict.fromkeys(parts, 1), **others}
    alone = True not in switches and sliced == {True} and not others.get("_id", 0)
    if not alone:
        raise UnsupportedQueryError("parts of arrays beside what is hidden")
    return others


def _is(value: Any, operator: str) -> bool:
    return isinstance(value, Mapping) and list(value) == [operator]


def _part(name: str, value: Any) -> _Part | None:
    """Return the function for the shown part of an array; None: no part, or one that is not evaluated here."""
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
        bound is None or (isinstance(bound, int) and not isinstance(bound, bool)) for bound in bounds
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
