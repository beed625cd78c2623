"""Parts of a date: `$year` and its kin, `$dateToParts`, `$dateFromParts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from bson import Int64

from quaestor.errors import MalformedQueryError
from quaestor.query.expressions import calendar
from quaestor.query.expressions.dates import date, in_range, moment_ms
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import members_of
from quaestor.query.expressions.kinds import INT64_MAX, INT64_MIN, is_nullish, kind_of
from quaestor.query.expressions.nodes import Compiled, Evaluate, Frame, Operator, Scope, call, folded
from quaestor.query.expressions.numeric import whole_number
from quaestor.query.expressions.zones import Zone, local_ms, zone, zone_of

_SHORT: Final = (-(2**15), 2**15 - 1)
_LONG: Final = (INT64_MIN, INT64_MAX)
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "month": _SHORT,
    "isoWeek": _SHORT,
    "day": _SHORT,
    "isoDayOfWeek": _SHORT,
    "hour": _SHORT,
    "minute": _SHORT,
    "second": _LONG,
    "millisecond": _LONG,
}
_TIME: Final = ("hour", "minute", "second", "millisecond")

PARTS: Final[Mapping[str, Callable[[int], int]]] = {
    "$year": lambda at_ms: calendar.civil(at_ms)[0],
    "$month": lambda at_ms: calendar.civil(at_ms)[1],
    "$dayOfMonth": lambda at_ms: calendar.civil(at_ms)[2],
    "$hour": lambda at_ms: calendar.clock(at_ms)[0],
    "$minute": lambda at_ms: calendar.clock(at_ms)[1],
    "$second": lambda at_ms: calendar.clock(at_ms)[2],
    "$millisecond": lambda at_ms: calendar.clock(at_ms)[3],
    "$dayOfYear": calendar.day_of_year,
    "$dayOfWeek": lambda at_ms: calendar.day_of_week(at_ms) + 1,
    "$week": calendar.week_of_year,
    "$isoDayOfWeek": calendar.iso_day_of_week,
    "$isoWeek": lambda at_ms: calendar.iso_week(at_ms)[1],
    "$isoWeekYear": lambda at_ms: Int64(calendar.iso_week(at_ms)[0]),
}
"""Parts by operator, from a local time in milliseconds."""


def _part(name: str, operand: Any, scope: Scope) -> Compiled:
    read = PARTS[name]

    def part(value: Any, zone_name: Any) -> Any:
        at_ms = moment_ms(value)
        local = zone_of(zone_name)
        return read(local.local(at_ms)) if local is not None else None

    return call(part, _date_and_zone(name, operand, scope), scope, deciding=1)


def _date_and_zone(name: str, operand: Any, scope: Scope) -> list[Compiled]:
    """Compile the operand: a date alone, or `{date, timezone}`."""
    utc = scope.compile("UTC")
    if isinstance(operand, list):
        if len(operand) != 1:
            raise MalformedQueryError(
                f"{name} accepts exactly one argument if given an array, but was given {len(operand)}"
            )
        return [scope.compile(operand[0]), utc]
    if not isinstance(operand, dict) or next(iter(operand), "").startswith("$"):
        return [scope.compile(operand), utc]
    members = members_of(
        name,
        operand,
        required=("date",),
        optional=("timezone",),
        missing="missing '{field}' argument to {name}",
        unknown='unrecognized option to {name}: "{field}"',
    )
    return [scope.compile(members["date"]), zone_member(members, scope)]


def zone_member(members: Mapping[str, Any], scope: Scope) -> Compiled:
    """Compile the `timezone` argument; UTC if it is absent."""
    return scope.compile(members.get("timezone", "UTC"))


def _date_to_parts(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("date",),
        optional=("timezone", "iso8601"),
        unknown="Unrecognized argument to {name}: {field}",
    )
    parts = [
        scope.compile(members["date"]),
        zone_member(members, scope),
        scope.compile(members.get("iso8601", False)),
    ]
    date_of, zone_name_of, iso_of = (part.evaluate for part in parts)

    def to_parts(frame: Frame) -> Any:
        """Evaluate the date first although it decides last: with a null zone `iso8601` is not evaluated."""
        value = date_of(frame)
        local = zone_of(zone_name_of(frame))
        if local is None:
            return None
        iso = iso_of(frame)
        if is_nullish(iso):
            return None
        if not isinstance(iso, bool):
            raise ExpressionError(f"iso8601 must evaluate to a bool, found {kind_of(iso)}")
        return None if is_nullish(value) else _parts(value, local, iso)

    compiled = Compiled(to_parts)
    return folded(compiled, scope) if all(part.is_constant for part in parts) else compiled


def _parts(value: Any, local: Zone, iso: bool) -> dict[str, int]:
    at_ms = local.local(moment_ms(value))
    parts: dict[str, int]
    if iso:
        year, week = calendar.iso_week(at_ms)
        parts = {"isoWeekYear": year, "isoWeek": week, "isoDayOfWeek": calendar.iso_day_of_week(at_ms)}
    else:
        parts = dict(zip(("year", "month", "day"), calendar.civil(at_ms), strict=True))
    return parts | dict(zip(_TIME, calendar.clock(at_ms), strict=True))


def _date_from_parts(name: str, operand: Any, scope: Scope) -> Compiled:
    natural, iso = ("year", "month", "day"), ("isoWeekYear", "isoWeek", "isoDayOfWeek")
    members = members_of(
        name,
        operand,
        required=(),
        optional=(*natural, *iso, *_TIME, "timezone"),
        unknown="Unrecognized argument to {name}: {field}",
    )
    if "year" not in members and "isoWeekYear" not in members:
        raise MalformedQueryError("$dateFromParts requires either 'year' or 'isoWeekYear' to be present")
    is_iso = "isoWeekYear" in members
    if any(field in members for field in (natural if is_iso else iso)):
        raise MalformedQueryError("$dateFromParts does not allow mixing ISO dates with natural dates")
    fields = (*_TIME, *(iso if is_iso else natural))
    parts = [scope.compile(members.get(field, 0 if field in _TIME else 1)) for field in fields]
    local_zone = zone_member(members, scope)
    steps: list[tuple[Evaluate, Callable[[Any], Any]]] = [
        (part.evaluate, partial(_date_part, field)) for field, part in zip(fields, parts, strict=True)
    ]
    steps.insert(len(_TIME), (local_zone.evaluate, zone))

    def from_parts(frame: Frame) -> Any:
        values = []
        for evaluate, check in steps:
            value = evaluate(frame)
            if is_nullish(value):
                return None
            values.append(check(value))
        return _from_parts(is_iso, *values)

    compiled = Compiled(from_parts)
    return folded(compiled, scope) if all(part.is_constant for part in (*parts, local_zone)) else compiled


def _date_part(field: str, value: Any) -> int:
    number = whole_number(value)
    if number is None:
        raise ExpressionError(f"'{field}' must evaluate to an integer, found {kind_of(value)}")
    least, most = _RANGES.get(field, _LONG)
    if not least <= number <= most:
        raise ExpressionError(
            f"'{field}' must evaluate to a value in the range [{least}, {most}]; value {number} is not in range"
        )
    return number


def _from_parts(
    is_iso: bool, hour: int, minute: int, second: int, millisecond: int, local: Zone, year: int, middle: int, day: int
) -> Any:
    if not 1 <= year <= 9999:
        raise ExpressionError(f"the year must evaluate to an integer in the range 1 to 9999, found {year}")
    midnight = calendar.days_from_iso(year, middle, day) * calendar.DAY_MS if is_iso else local_ms(year, middle, day)
    if abs(millisecond) > INT64_MAX // 1000:
        raise ExpressionError("Overflow casting from a lower-precision duration to a higher-precision duration")
    elapsed = ((hour * 60 + minute) * 60 + second) * 1000 + millisecond
    return date(in_range(local.moment(midnight + elapsed), "$dateFromParts"))


OPERATORS: Final[Mapping[str, Operator]] = {
    **dict.fromkeys(PARTS, _part),
    "$dateToParts": _date_to_parts,
    "$dateFromParts": _date_from_parts,
}
