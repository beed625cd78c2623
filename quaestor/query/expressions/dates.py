"""Dates as milliseconds since the epoch, the form that BSON stores and mongod computes with."""

from __future__ import annotations

import datetime
from typing import Any, Final

from bson import DatetimeMS, ObjectId, Timestamp

from quaestor.query.bson_order import milliseconds
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.kinds import INT64_MAX, INT64_MIN, kind_of

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_DATETIME_MIN_MS: Final = -62_135_596_800_000
_DATETIME_MAX_MS: Final = 253_402_300_799_999


def date(at_ms: int) -> datetime.datetime | DatetimeMS:
    """Return the value that pymongo decodes for this date: a naive UTC datetime, or DatetimeMS beyond the years 1 to 9999."""
    if _DATETIME_MIN_MS <= at_ms <= _DATETIME_MAX_MS:
        return _EPOCH + datetime.timedelta(milliseconds=at_ms)
    return DatetimeMS(at_ms)


def date_ms(value: Any) -> int:
    """Return the milliseconds of a value whose kind is "date"."""
    return int(value) if isinstance(value, DatetimeMS) else milliseconds(value)


def moment_ms(value: Any) -> int:
    """Return the milliseconds of any value that holds a moment: a date, a timestamp or an ObjectId.

    Raises ExpressionError for every other type.
    """
    if isinstance(value, ObjectId):
        return int.from_bytes(value.binary[:4], "big") * 1000
    if isinstance(value, Timestamp):
        return value.time * 1000
    if kind_of(value) == "date":
        return date_ms(value)
    raise ExpressionError(f"can't convert from BSON type {kind_of(value)} to Date")


def in_range(at_ms: int, operator: str) -> int:
    """Return at_ms, if BSON can hold it. Raises ExpressionError otherwise."""
    if not INT64_MIN <= at_ms <= INT64_MAX:
        raise ExpressionError(f"date overflow in {operator}")
    return at_ms
