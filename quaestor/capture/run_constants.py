"""Constants of one run: each query of a handler as a shape and a hash of its values, to be compared with another run.

The shape is everything but the values: the names of databases, collections, fields and operators, with digits left out. The value
covers the whole command except options that change no result. Both hold within one process only: Python salts its hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import bson
from bson import ObjectId
from bson.errors import BSONError

MOST_SHAPES: Final = 64
"""Shapes of one run that are compared."""
_WITHOUT_EFFECT: Final = frozenset(
    {
        "lsid", "$clusterTime", "$db", "$readPreference", "readConcern", "txnNumber", "autocommit", "startTransaction",
        "apiVersion", "apiStrict", "apiDeprecationErrors", "comment", "maxTimeMS", "batchSize", "cursor", "allowDiskUse",
        "noCursorTimeout",
    }
)  # fmt: skip
"""Options that change no result. A trace's id may stand in a comment."""
_DIGITS: Final = re.compile(r"[0-9]+")
_DEEPEST: Final = 60
_PLAIN: Final = frozenset({str, int, float, bool, type(None), datetime, ObjectId})
_NESTED: Final = (Mapping, list, tuple)
_WIDTH: Final = 2**64


class QueryConstants(NamedTuple):
    """Constants of one query.

    shape: hash of its structure.
    value: hash of its values; equal queries have equal values.
    """

    shape: int
    value: int


class RunQuery(NamedTuple):
    """One query of a run.

    constants: None: nothing is known of them.
    follows: an earlier read was answered before this one was sent, so its result may have decided the constants.
    description: "find on db.collection", for messages.
    """

    constants: QueryConstants | None
    follows: bool
    description: str


class RunShape(NamedTuple):
    """All queries of one shape in a run.

    value: the sum of their values: the order does not matter.
    before: so many queries of the run may have decided the constants: the first ones.
    description: of the first.
    """

    value: int
    before: int
    description: str


def query_constants(command: Mapping[str, Any], database: str) -> QueryConstants | None:
    """Return the constants of a read command; None if they are not known. O(size)."""
    names: list[str] = [_general(database)]
    deciding: dict[str, Any] = {"": database}
    for name, value in command.items():
        if name in _WITHOUT_EFFECT:
            continue
        deciding[name] = value
        names.append(name)
        kind = value.__class__
        if kind is str:
            names.append(_general(value))  # a collection, or a field
        elif kind not in _PLAIN and (kind is dict or isinstance(value, _NESTED)):
            _collect(value, names, 0)
    try:
        return QueryConstants(hash(tuple(names)), hash(bson.encode(deciding)))
    except (BSONError, TypeError, ValueError, OverflowError):
        written = repr(deciding)  # native UUIDs, and types that only the client's codec can write
        return None if " at 0x" in written else QueryConstants(hash(tuple(names)), hash(written))


def shapes_of(run: Iterable[RunQuery]) -> dict[int, RunShape]:
    """Group the queries of a run by their shapes, at most MOST_SHAPES. O(queries)."""
    shapes: dict[int, RunShape] = {}
    for number, (constants, follows, description) in enumerate(run):
        if constants is None:
            continue
        shape, value = constants
        before = number if follows else 0
        known = shapes.get(shape)
        if known is not None:
            shapes[shape] = RunShape((known.value + value) % _WIDTH, before or known.before, known.description)
        elif len(shapes) < MOST_SHAPES:
            shapes[shape] = RunShape(value, before, description)
    return shapes


def _collect(value: Any, names: list[str], depth: int) -> None:
    """Append the names of a value's fields. A list is judged by its first item: one of constants may have any length."""
    if depth > _DEEPEST:
        return
    if value.__class__ is dict or isinstance(value, Mapping):
        for name, item in value.items():
            names.append(name if name.isalpha() else _general(name))
            if item.__class__ not in _PLAIN and (item.__class__ is dict or isinstance(item, _NESTED)):
                _collect(item, names, depth + 1)
    elif value and (value[0].__class__ is dict or isinstance(value[0], _NESTED)):
        for item in value:
            if item.__class__ is dict or isinstance(item, _NESTED):
                _collect(item, names, depth + 1)


@lru_cache(maxsize=4_096)
def _general(name: str) -> str:
    """A name without its digits."""
    return _DIGITS.sub("#", name)
