"""Units of time, under the names of the date operators.

Units up to the hour count elapsed time; days and longer follow the calendar and the clocks of the time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.query.expressions.calendar import DAY_MS
from quaestor.query.expressions.dates import moment_ms
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.kinds import is_string, kind_of

UNIT_MS: Final[Mapping[str, int]] = {
    "week": 7 * DAY_MS,
    "day": DAY_MS,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
}
UNIT_MONTHS: Final[Mapping[str, int]] = {"year": 12, "quarter": 3, "month": 1}
ELAPSED: Final = frozenset({"hour", "minute", "second", "millisecond"})
"""Units of elapsed time."""
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


def time_unit(name: str, value: Any) -> str:
    """Return the unit, if it is one. Raises ExpressionError."""
    if not is_string(value):
        raise ExpressionError(f"{name} requires 'unit' to be a string, but got {kind_of(value)}")
    if value not in UNIT_MS and value not in UNIT_MONTHS:
        raise ExpressionError(f"{name} parameter 'unit' value cannot be recognized as a time unit: {value}")
    return value


def moment_of(name: str, role: str, value: Any) -> int:
    """Return the milliseconds of an operand that must hold a moment. Raises ExpressionError."""
    if kind_of(value) not in ("date", "timestamp", "objectId"):
        raise ExpressionError(f"{name} requires '{role}' to be a date, but got {kind_of(value)}")
    return moment_ms(value)


def day_of_week(name: str, value: Any) -> int:
    """Return the day of a `startOfWeek`, 0 for Sunday to 6, from its name or first three letters. Raises ExpressionError."""
    if not is_string(value):
        raise ExpressionError(f"{name} requires 'startOfWeek' to be a string, but got {kind_of(value)}")
    lower = value.lower()
    for number, day in enumerate(_DAYS):
        if lower in (day, day[:3]):
            return number
    raise ExpressionError(f"{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {value}")
