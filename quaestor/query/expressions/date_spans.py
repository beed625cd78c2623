"""`$dateDiff` and `$dateTrunc`: counting and finding the starts of units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from bson import Int64

from quaestor.query.expressions import calendar
from quaestor.query.expressions.calendar import DAY_MS
from quaestor.query.expressions.date_parts import zone_member
from quaestor.query.expressions.dates import date, in_range
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import members_of
from quaestor.query.expressions.kinds import INT64_MAX, is_nullish, kind_of
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope, folded
from quaestor.query.expressions.numeric import whole_number
from quaestor.query.expressions.time_units import ELAPSED, UNIT_MONTHS, UNIT_MS, day_of_week, moment_of, time_unit
from quaestor.query.expressions.zones import Zone, local_ms, zone

_BIN_LIMIT: Final = 100_000_000_000


def _date_diff(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("startDate", "endDate", "unit"),
        optional=("timezone", "startOfWeek"),
        unknown="Unrecognized argument to {name}: {field}",
    )

    def difference(values: list[Any], unit: str, local: Zone, first_day: int) -> Int64:
        start, end = moment_of(name, "startDate", values[0]), moment_of(name, "endDate", values[1])
        return Int64(_difference(start, end, unit, local, first_day))

    operands = {field: members[field] for field in ("startDate", "endDate", "unit")}
    return _unit_operator(name, difference, operands, members, scope)


def _date_trunc(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("date", "unit"),
        optional=("binSize", "timezone", "startOfWeek"),
        unknown="Unrecognized argument to {name}: {field}. Expected arguments are date, unit, and optionally, binSize, "
        "timezone, startOfWeek",
    )

    def truncate(values: list[Any], unit: str, local: Zone, first_day: int) -> Any:
        at_ms = moment_of(name, "date", values[0])
        return date(in_range(_truncated(at_ms, unit, _bin_size(name, unit, values[2]), local, first_day), "dateTrunc"))

    operands = {"date": members["date"], "unit": members["unit"], "binSize": members.get("binSize", 1)}
    return _unit_operator(name, truncate, operands, members, scope)


def _unit_operator(
    name: str,
    function: Callable[[list[Any], str, Zone, int], Any],
    operands: Mapping[str, Any],
    members: Mapping[str, Any],
    scope: Scope,
) -> Compiled:
    """Evaluate operands in order, then `startOfWeek` if the unit is a week, then the time zone; null at the first null.

    operands: as written, "unit" among them.
    function: receives their values, the unit, the zone, and the first day of weeks (0 for Sunday).
    """
    parts = [scope.compile(operand) for operand in operands.values()]
    week_start, zone_part = scope.compile(members.get("startOfWeek", "sunday")), zone_member(members, scope)
    deciding = tuple(part.evaluate for part in parts)
    unit_at = list(operands).index("unit")
    first_day_of, zone_name_of = week_start.evaluate, zone_part.evaluate

    def evaluate(frame: Frame) -> Any:
        values = []
        for operand in deciding:
            value = operand(frame)
            if is_nullish(value):
                return None
            values.append(value)
        first_day = first_day_of(frame) if values[unit_at] == "week" else "sunday"
        if is_nullish(first_day):
            return None
        zone_name = zone_name_of(frame)
        if is_nullish(zone_name):
            return None
        return function(values, time_unit(name, values[unit_at]), zone(zone_name), day_of_week(name, first_day))

    compiled = Compiled(evaluate)
    return folded(compiled, scope) if all(part.is_constant for part in (*parts, week_start, zone_part)) else compiled


def _difference(start: int, end: int, unit: str, local: Zone, first_day: int) -> int:
    """Return the number of starts of the unit between the moments."""
    if unit == "millisecond":
        return in_range(end - start, "dateDiff")
    there = local.local(start), local.local(end)
    if unit in UNIT_MONTHS:
        size = UNIT_MONTHS[unit]
        first, last = ((year * 12 + month - 1) // size for year, month, _ in map(calendar.civil, there))
        return last - first
    if unit == "week":
        # 1970-01-01 was a Thursday, day 4 of weeks that begin on Sundays.
        first, last = ((moment // DAY_MS + 4 - first_day) // 7 for moment in there)
        return last - first
    size = UNIT_MS[unit]
    first, last = (moment // size for moment in there)
    if unit == "day":
        return last - first
    shift = (there[1] - end) - (there[0] - start)
    return last - first - int(shift / size)


def _bin_size(name: str, unit: str, value: Any) -> int:
    size = whole_number(value)
    if size is None:
        raise ExpressionError(f"{name} requires 'binSize' to be a 64-bit integer, but got type {kind_of(value)}")
    if size <= 0:
        raise ExpressionError(f"{name} requires 'binSize' to be greater than 0, but got value {size}")
    if size > (INT64_MAX // UNIT_MS[unit] if unit in ELAPSED else _BIN_LIMIT):
        raise ExpressionError("dateTrunc unsupported binSize value")
    return size


@lru_cache(maxsize=256)
def _reference(local: Zone) -> tuple[int, bool]:
    """Return the moment at which the year 2000 began in a zone, and whether daylight saving time was in force."""
    moment = local.moment(local_ms(2000, 1, 1))
    return moment, local.clock(moment)[1]


def _truncated(at_ms: int, unit: str, size: int, local: Zone, first_day: int) -> int:
    """Return the start of the bin that holds the moment; bins are counted from the year 2000."""
    reference, saving = _reference(local)
    if unit in ELAPSED:
        width = UNIT_MS[unit] * size
        return reference + in_range(at_ms - reference, "dateTrunc") // width * width
    there = local.local(at_ms)
    if unit in UNIT_MS:
        # 2000-01-01 was a Saturday; weeks count from the first week start after it.
        reference_day = 1 + (first_day - 6) % 7 if unit == "week" else 1
        first = local_ms(2000, 1, reference_day)
        width = UNIT_MS[unit] * size
        return local.moment(first + (there - first) // width * width, saving=saving)
    year, month, _ = calendar.civil(there)
    width = UNIT_MONTHS[unit] * size
    months = ((year - 2000) * 12 + month - 1) // width * width
    return local.moment(local_ms(2000, 1 + months, 1), saving=saving)


OPERATORS: Final[Mapping[str, Operator]] = {"$dateDiff": _date_diff, "$dateTrunc": _date_trunc}
