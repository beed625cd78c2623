"""Values as text: the form of numbers and dates in string operators and in `$toString`."""

from __future__ import annotations

import math
from typing import Any, Final

from bson import Timestamp

from quaestor.query.expressions.calendar import civil, clock
from quaestor.query.expressions.dates import date_ms
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.kinds import is_nullish, is_string, kind_of

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def double_text(value: float) -> str:
    """Return a double with six significant digits, as mongod 6.0 prints it."""
    return f"{'-' if value != value and math.copysign(1, value) < 0 else ''}{value:g}"


def date_text(at_ms: int) -> str:
    """Return `2020-01-02T03:04:05.678Z`. Raises ExpressionError outside the years 0 to 9999."""
    year, month, day = civil(at_ms)
    if not 0 <= year <= 9999:
        raise ExpressionError(
            f"Could not convert date to string: date component was outside the supported range of 0-9999: {year}"
        )
    hour, minute, second, millisecond = clock(at_ms)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z"


def coerced_text(value: Any) -> str:
    """Return the text that `$toLower`, `$substrBytes` and their kin read: null as "", numbers and dates as text.

    Raises ExpressionError for types without a text.
    """
    if is_string(value):
        return str(value)
    if is_nullish(value):
        return ""
    match kind_of(value):
        case "int" | "long" | "decimal":
            return str(value)
        case "double":
            return double_text(value)
        case "date":
            return date_text(date_ms(value))
        case "javascript":
            return str.__str__(value)
        case "timestamp":
            return _timestamp_text(value)
    raise ExpressionError(f"can't convert from BSON type {kind_of(value)} to String")


def _timestamp_text(value: Timestamp) -> str:
    at_ms = value.time * 1000
    _, month, day = civil(at_ms)
    hour, minute, second, _ = clock(at_ms)
    return f"{_MONTHS[month - 1]} {day:2} {hour:02}:{minute:02}:{second:02}:{value.inc}"
