"""Constants of a query: leaves that a handler may have computed, with their places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.regex import Regex

MOST_CONSTANTS: Final = 500
"""Constants of one query that are examined."""
MOST_CHARACTERS: Final = 1_000
"""Characters of a constant that are examined."""
_LEFT_OUT: Final = frozenset({"$limit", "$skip", "$sort", "$slice", "$meta"})
_PROJECTION: Final = ("projection",)
_LARGEST: Final = 10**19
_DIGIT: Final = re.compile(r"[0-9]")


class Kind(Enum):
    """Kind of a constant: whole numbers have no leading zeros, and a moment's digits are its parts one by one."""

    TEXT = auto()
    NUMBER = auto()
    MOMENT = auto()


class Constant(NamedTuple):
    """One constant.

    place: the query's shape and the path.
    text: as it is written; a point in time as ISO 8601.
    """

    place: tuple[str, ...]
    text: str
    kind: Kind


def constants_of(namespace: str, **fields: Any) -> tuple[Constant, ...]:
    """Return the constants of a query's filter, pipeline, let and projection, and names of fields and collections with digits.

    O(size), at most MOST_CONSTANTS.
    """
    constants: list[Constant] = []
    shape = _shape(fields)
    collection = namespace.partition(".")[2]
    if _DIGIT.search(collection):
        constants.append(Constant((shape, "collection"), collection, Kind.TEXT))
    for name, value in fields.items():
        if value:
            _collect(value, (shape, name), constants)
    return tuple(constants)


def _shape(fields: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for value in fields.values():
        if isinstance(value, Mapping):
            parts.extend(value)
        elif isinstance(value, tuple | list):
            parts.extend(stage for item in value for stage in item)
    return ",".join(parts)


def _collect(value: Any, path: tuple[str, ...], constants: list[Constant]) -> None:
    kind = type(value)
    if kind is dict:
        for name, item in value.items():
            if name in _LEFT_OUT or item is None or item is True or item is False:
                continue
            if _DIGIT.search(name):
                _note((*path, "name"), (name, Kind.TEXT), constants)
            if name == "$project" or path[1:] == _PROJECTION:
                item = _without_flags(item)
            _collect(item, (*path, name), constants)
    elif kind is list or kind is tuple:
        for number, item in enumerate(value):
            _collect(item, (*path, str(number)), constants)
    elif len(constants) < MOST_CONSTANTS:
        _note(path, _written(value), constants)


def _note(place: tuple[str, ...], written: tuple[str, Kind] | None, constants: list[Constant]) -> None:
    if written is not None and len(constants) < MOST_CONSTANTS:
        constants.append(Constant(place, *written))


def _without_flags(item: Any) -> Any:
    """Return a projection's expressions, without the flags 0 and 1 that show or hide a field."""
    if isinstance(item, Mapping):
        return {name: how for name, how in item.items() if not _flag(how)}
    return None if _flag(item) else item


def _flag(value: Any) -> bool:
    return value in (0, 1) if isinstance(value, int | float) else False


def _written(value: Any) -> tuple[str, Kind] | None:
    """Return the text and the kind of a leaf; None for a leaf that cannot hold parts of a time."""
    kind = type(value)
    if kind is int:
        return (str(abs(value)), Kind.NUMBER) if -_LARGEST < value < _LARGEST else None
    if isinstance(value, str):
        # A field of the records, or a variable: a constant only if it has digits.
        return (
            None
            if not value or (value[0] == "$" and not _DIGIT.search(value))
            else (value[:MOST_CHARACTERS], Kind.TEXT)
        )
    if isinstance(value, bool):
        return None
    if isinstance(value, Decimal128):
        value = value.to_decimal()
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds"), Kind.MOMENT
    if isinstance(value, DatetimeMS):
        return str(int(value)), Kind.NUMBER
    pattern = getattr(value, "pattern", None) if isinstance(value, Regex | re.Pattern) else None
    return (pattern[:MOST_CHARACTERS], Kind.TEXT) if isinstance(pattern, str) else None


def _number(value: float | Decimal) -> tuple[str, Kind] | None:
    if not -_LARGEST < value < _LARGEST:  # also false for NaN
        return None
    whole = int(value)
    return (str(abs(whole)), Kind.NUMBER) if whole == value else (str(abs(value)), Kind.TEXT)
