"""`$dateAdd`, `$dateSubtract`, `$dateDiff`, `$dateTrunc`.

Units up to the hour count elapsed time; days and longer follow the calendar and the clocks of the time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bson import Int64

from quaestor.invalidation.query.expressions import calendar
from quaestor.invalidation.query.expressions.calendar import DAY_MS
from quaestor.invalidation.query.expressions.date_parts import zone_member
from quaestor.invalidation.query.expressions.dates import date, in_range, moment_ms
from quaestor.invalidation.query.expressions.errors import ExpressionError
from quaestor.invalidation.query.expressions.forms import members_of
from quaestor.invalidation.query.expressions.kinds import INT64_MAX, INT64_MIN, is_nullish, is_string, kind_of
from quaestor.invalidation.query.expressions.nodes import Compiled, Operator, Scope, call
from quaestor.invalidation.query.expressions.numeric import whole_number
from quaestor.invalidation.query.expressions.zones import UTC, Zone, local_ms, zone_of

_UNIT_MS: Final[Mapping[str, int]] = {
    "week": 7 * DAY_MS,
    "day": DAY_MS,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
}
_UNIT_MONTHS: Final[Mapping[str, int]] = {"year": 12, "quarter": 3, "month": 1}
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_AMOUNT_LIMITS: Final[Mapping[str, int]] = {
    "year": 584_942_417 + 1,
    "quarter": 4 * (584_942_417 + 1),
    "month": 12 * (584_942_417 + 1),
    "week": 30_500_568_904 + 1,
    "day": 7 * (30_500_568_904 + 1),
    "hour": 24 * 7 * (30_500_568_904 + 1),
    "minute": 60 * 24 * 7 * (30_500_568_904 + 1),
    "second": 60 * 60 * 24 * 7 * (30_500_568_904 + 1),
    "millisecond": 2**64,
}
_BIN_LIMIT: Final = 100_000_000_000


def _unit(name: str, value: Any) -> str:
    if not is_string(value):
        raise ExpressionError(f"{name} requires 'unit' to be a string, but got {kind_of(value)}")
    if value not in _UNIT_MS and value not in _UNIT_MONTHS:
        raise ExpressionError(f"{name} parameter 'unit' value cannot be recognized as a time unit: {value}")
    return value


def _date_of(name: str, role: str, value: Any) -> int:
    if kind_of(value) not in ("date", "timestamp", "objectId"):
        raise ExpressionError(f"{name} requires '{role}' to be a date, but got {kind_of(value)}")
    return moment_ms(value)


def _shift(sign: int) -> Operator:
    """`$dateAdd` and `$dateSubtract`."""

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        members = members_of(
            name,
            operand,
            required=("startDate", "unit", "amount"),
            optional=("timezone",),
            missing="{name} requires startDate, unit, and amount to be present",
            unknown="Unrecognized argument to {name}: {field}. Expected arguments are startDate, unit, amount, and "
            "optionally timezone.",
            not_object="{name} expects an object as its argument",
        )

        def shift(value: Any, unit_value: Any, amount_value: Any, zone_name: Any) -> Any:
            if any(is_nullish(argument) for argument in (value, unit_value, amount_value, zone_name)):
                return None
            at_ms = _date_of(name, "startDate", value)
            unit = _unit(name, unit_value)
            amount = whole_number(amount_value)
            if amount is None:
                raise ExpressionError(f"{name} expects integer amount of time units")
            if amount == INT64_MIN and sign < 0:
                raise ExpressionError(f"invalid {name} 'amount' parameter value: {amount}")
            local = zone_of(zone_name) or UTC
            return date(date_add(at_ms, unit, sign * amount, local))

        operands = [scope.compile(members[field]) for field in ("startDate", "unit", "amount")]
        return call(shift, [*operands, zone_member(members, scope)], scope)

    return build


def date_add(at_ms: int, unit: str, amount: int, local: Zone) -> int:
    """The moment that many units later. Raises ExpressionError when BSON cannot hold it."""
    if abs(amount) >= _AMOUNT_LIMITS[unit]:
        raise ExpressionError(f"invalid dateAdd 'amount' parameter value: {amount} {unit}")
    if unit in ("hour", "minute", "second", "millisecond"):
        return in_range(at_ms + amount * _UNIT_MS[unit], "dateAdd")
    offset = local.offset_ms(at_ms)
    there = at_ms + offset
    if unit in _UNIT_MS:
        moved = there + amount * _UNIT_MS[unit]
    else:
        year, month, day = calendar.civil(there)
        years, month_index = divmod(year * 12 + month - 1 + amount * _UNIT_MONTHS[unit], 12)
        last = calendar.days_in_month(years, month_index + 1)
        moved = local_ms(years, month_index + 1, min(day, last), there % DAY_MS)
    return in_range(local.moment(moved, prefer_ms=offset), "dateAdd")


def _date_diff(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("startDate", "endDate", "unit"),
        optional=("timezone", "startOfWeek"),
        unknown="Unrecognized argument to {name}: {field}",
    )

    def difference(start: Any, end: Any, unit_value: Any, zone_name: Any, week_start: Any) -> Any:
        if is_nullish(start) or is_nullish(end) or is_nullish(unit_value):
            return None
        unit = _unit(name, unit_value)
        if is_nullish(zone_name) or (unit == "week" and is_nullish(week_start)):
            return None
        first_day = _day_of_week(name, week_start) if unit == "week" else 0
        moments = _date_of(name, "startDate", start), _date_of(name, "endDate", end)
        local = zone_of(zone_name) or UTC
        return Int64(_difference(*moments, unit, local, first_day))

    operands = [scope.compile(members[field]) for field in ("startDate", "endDate", "unit")]
    return call(difference, [*operands, zone_member(members, scope), _week_start(members, scope)], scope)


def _week_start(members: Mapping[str, Any], scope: Scope) -> Compiled:
    return scope.compile(members.get("startOfWeek", "sunday"))


def _day_of_week(name: str, value: Any) -> int:
    """0 for Sunday to 6."""
    if not is_string(value):
        raise ExpressionError(f"{name} requires 'startOfWeek' to be a string, but got {kind_of(value)}")
    lower = value.lower()
    for number, day in enumerate(_DAYS):
        if lower in (day, day[:3]):
            return number
    raise ExpressionError(f"{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {value}")


def _difference(start: int, end: int, unit: str, local: Zone, first_day: int) -> int:
    """How many starts of the unit lie between the moments."""
    if unit == "millisecond":
        if not INT64_MIN <= end - start <= INT64_MAX:
            raise ExpressionError("dateDiff overflowed")
        return end - start
    there = local.local(start), local.local(end)
    if unit in _UNIT_MONTHS:
        size = _UNIT_MONTHS[unit]
        first, last = ((year * 12 + month - 1) // size for year, month, _ in map(calendar.civil, there))
        return last - first
    if unit == "week":
        # 1970-01-01 was a Thursday, day 4 of weeks that begin on Sundays.
        first, last = ((moment // DAY_MS + 4 - first_day) // 7 for moment in there)
        return last - first
    size = _UNIT_MS[unit]
    first, last = (moment // size for moment in there)
    if unit == "day":
        return last - first
    shift = (there[1] - end) - (there[0] - start)
    return last - first - int(shift / size)


def _date_trunc(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("date", "unit"),
        optional=("binSize", "timezone", "startOfWeek"),
        unknown="Unrecognized argument to {name}: {field}. Expected arguments are date, unit, and optionally, binSize, "
        "timezone, startOfWeek",
    )

    def truncate(value: Any, unit_value: Any, bin_value: Any, zone_name: Any, week_start: Any) -> Any:
        if any(is_nullish(argument) for argument in (value, bin_value, unit_value, zone_name)):
            return None
        unit = _unit(name, unit_value)
        if unit == "week" and is_nullish(week_start):
            return None
        first_day = _day_of_week(name, week_start) if unit == "week" else 0
        at_ms = _date_of(name, "date", value)
        local = zone_of(zone_name) or UTC
        return date(in_range(_truncated(at_ms, unit, _bin_size(name, unit, bin_value), local, first_day), "dateTrunc"))

    operands = [
        scope.compile(members["date"]),
        scope.compile(members["unit"]),
        scope.compile(members.get("binSize", 1)),
        zone_member(members, scope),
        _week_start(members, scope),
    ]
    return call(truncate, operands, scope)


def _bin_size(name: str, unit: str, value: Any) -> int:
    size = whole_number(value)
    if size is None:
        raise ExpressionError(f"{name} requires 'binSize' to be a 64-bit integer, but got type {kind_of(value)}")
    if size <= 0:
        raise ExpressionError(f"{name} requires 'binSize' to be greater than 0, but got value {size}")
    if unit != "millisecond" and size > _BIN_LIMIT:
        raise ExpressionError("dateTrunc unsupported binSize value")
    return size


def _truncated(at_ms: int, unit: str, size: int, local: Zone, first_day: int) -> int:
    """The start of the bin that holds the moment; bins are counted from the year 2000."""
    if unit in ("hour", "minute", "second", "millisecond"):
        reference = local.moment(local_ms(2000, 1, 1))
        width = _UNIT_MS[unit] * size
        return reference + (at_ms - reference) // width * width
    there = local.local(at_ms)
    if unit in _UNIT_MS:
        # 2000-01-01 was a Saturday; weeks count from the first week start after it.
        reference_day = 1 + (first_day - 6) % 7 if unit == "week" else 1
        reference = local_ms(2000, 1, reference_day)
        width = _UNIT_MS[unit] * size
        return local.moment(reference + (there - reference) // width * width)
    year, month, _ = calendar.civil(there)
    width = _UNIT_MONTHS[unit] * size
    months = ((year - 2000) * 12 + month - 1) // width * width
    return local.moment(local_ms(2000, 1 + months, 1))


OPERATORS: Final[Mapping[str, Operator]] = {
    "$dateAdd": _shift(1),
    "$dateSubtract": _shift(-1),
    "$dateDiff": _date_diff,
    "$dateTrunc": _date_trunc,
}
