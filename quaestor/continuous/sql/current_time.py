"""Current time in a query: its spellings (R1), and bounds on it that hold exactly on whole microseconds (R3, R4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from quaestor.continuous.sql.formulas import Every, Formula, Lower, Some, Static, Upper, every
from quaestor.continuous.sql.intervals import (
    CALENDAR,
    UNITS,
    has_calendar_units,
    is_interval,
    number_of,
    ticks_of,
    unit_of,
)
from quaestor.continuous.sql.model import Instant
from quaestor.continuous.sql.refusals import refusal

T: Final = "t"
"""Name of the placeholder of the instant of a run."""
NOW_FUNCTIONS: Final = frozenset(
    {"now", "getdate", "sysdate", "transaction_timestamp", "statement_timestamp", "get_current_timestamp"}
)
"""Functions without a node of their own that give current time."""
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
OPERATORS: Final[dict[type[exp.Expr], str]] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.EQ: "=",
    exp.NEQ: "<>",
}
"""Comparisons that current time may take part in."""
_ADVICE: Final = "write a comparison with now() alone on one side, such as now() > created + INTERVAL 1 HOUR"


def with_placeholders(query: exp.Query) -> exp.Query:
    """Return a query whose spellings of current time are the placeholder of one instant (R1)."""
    return query.transform(_placeholder)  # type: ignore[return-value]


def involves_time(node: exp.Expr) -> bool:
    """Whether a part of a query holds the current time, its subqueries included."""
    return any(_is_now(part) for part in node.find_all(exp.Placeholder))


def bound(operator: str, left: exp.Expr, right: exp.Expr) -> Formula:
    """Return the truth of a comparison with current time.

    Raises QueryRefusedError.
    """
    if involves_time(left) and involves_time(right):
        raise refusal(left, "current time is on both sides of a comparison", _ADVICE)
    side, other = (left, right) if involves_time(left) else (right, left)
    return _bound(operator if side is left else _FLIPPED[operator], side, other)


def unknown(truth: Formula) -> Formula:
    """Return the formula that is true where a comparison with current time is NULL."""
    while isinstance(truth, Every | Some):
        truth = truth.parts[0]
    assert isinstance(truth, Lower | Upper)
    base = truth.instant.base
    return Static((base if isinstance(base, exp.Column | exp.Paren) else exp.paren(base)).is_(exp.null()))


def instant_of(node: exp.Expr) -> Instant:
    """Return the instant of an expression: constant intervals become ticks."""
    match node:
        case exp.Paren():
            return instant_of(node.this)
        case exp.Add() | exp.Sub():
            ticks = ticks_of(node.expression)
            if ticks is not None:
                return instant_of(node.this).later(ticks if isinstance(node, exp.Add) else -ticks)
            ticks = ticks_of(node.this) if isinstance(node, exp.Add) else None
            if ticks is not None:
                return instant_of(node.expression).later(ticks)
            return Instant(exp.paren(node))
        case exp.Column() | exp.TimestampTrunc() | exp.Placeholder():
            return Instant(node)
    return Instant(node if _is_timestamp_cast(node) else exp.cast(node, "TIMESTAMP"))


def _placeholder(node: exp.Expr) -> exp.Expr:
    now = exp.Placeholder(this=T)
    match node:
        case _ if isinstance(node, _CLOCKS):
            if node.this is not None and not number_of(node.this):
                raise refusal(node, "current time is in another time zone", "leave the zone out: the time zone is UTC")
        case exp.Anonymous() if node.name.lower() in NOW_FUNCTIONS and not node.expressions:
            pass
        case exp.CurrentDate() | exp.UtcDate():
            now.meta.update(node.meta)
            return _truncated(now, "DAY")
        case exp.Cast() if node.to.this == exp.DType.DATE and isinstance(_placeholder(node.this), exp.Placeholder):
            return _truncated(_placeholder(node.this), "DAY")
        case exp.Cast() if node.to.this in _TIMESTAMPS and isinstance(_placeholder(node.this), exp.Placeholder):
            return _placeholder(node.this)
        case exp.CurrentTime() | exp.Localtime() | exp.UtcTime():
            raise refusal(node, "the time of day is no instant", "compare timestamps with now()")
        case _:
            return node
    now.meta.update(node.meta)
    return now


_CLOCKS: Final = (
    exp.CurrentTimestamp,
    exp.CurrentTimestampLTZ,
    exp.Localtimestamp,
    exp.CurrentDatetime,
    exp.UtcTimestamp,
    exp.Systimestamp,
)
_TIMESTAMPS: Final = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.DATETIME})


def _is_now(node: exp.Expr) -> bool:
    return isinstance(node, exp.Placeholder) and node.name == T


def _is_timestamp_cast(node: exp.Expr) -> bool:
    return isinstance(node, exp.Cast) and node.to.this in _TIMESTAMPS


def _bound(operator: str, side: exp.Expr, other: exp.Expr) -> Formula:
    """Return the truth of `side operator other` where the side holds current time."""
    match side:
        case exp.Placeholder():
            return _of_instant(operator, instant_of(other))
        case exp.Paren():
            return _bound(operator, side.this, other)
        case exp.Add():
            time, rest = (side.this, side.expression) if involves_time(side.this) else (side.expression, side.this)
            return _bound(operator, time, exp.Sub(this=_operand(other), expression=_fixed(rest)))
        case exp.Sub() if involves_time(side.this):
            if is_interval(side.expression):
                return _bound(operator, side.this, exp.Add(this=_operand(other), expression=_fixed(side.expression)))
            return _bound(operator, side.this, exp.Add(this=_operand(side.expression), expression=_fixed(other)))
        case exp.Sub():
            return _bound(
                _FLIPPED[operator], side.expression, exp.Sub(this=_operand(side.this), expression=_fixed(other))
            )
        case exp.TimestampTrunc() | exp.DateTrunc():
            return _of_truncation(operator, side.this, unit_of(side.args.get("unit")), other, side)
        case exp.DateDiff():
            return _of_difference(operator, side, other)
    raise refusal(side, f"current time is inside {side.key.upper()}, so the instants of change are unknown", _ADVICE)


def _of_instant(operator: str, instant: Instant) -> Formula:
    """R4: on ticks each strict bound is an inclusive bound of the next tick."""
    match operator:
        case ">=":
            return Lower(instant)
        case ">":
            return Lower(instant.later(1))
        case "<=":
            return Upper(instant)
        case "<":
            return Upper(instant.later(-1))
        case "=":
            return every((Lower(instant), Upper(instant)))
        case _:
            return Some((Lower(instant.later(1)), Upper(instant.later(-1))))


def _of_truncation(operator: str, side: exp.Expr, unit: str, other: exp.Expr, place: exp.Expr) -> Formula:
    """Return the truth of `date_trunc(unit, side) operator other`: truncation is monotone, so bounds stay bounds."""
    if unit not in UNITS.keys() | CALENDAR:
        raise refusal(place, f"the unit {unit!r} is unknown", "write 'day', 'hour', 'week' or 'month'")
    start = _truncated(_timestamp(other), unit)
    end = _next(start, unit)
    on_boundary = exp.EQ(this=_timestamp(other), expression=start)
    ceiling = exp.Case(ifs=[exp.If(this=on_boundary, true=start)], default=end)
    rewritten: dict[str, Callable[[], Formula]] = {
        "<": lambda: _bound("<", side, ceiling),
        "<=": lambda: _bound("<", side, end),
        ">": lambda: _bound(">=", side, end),
        ">=": lambda: _bound(">=", side, ceiling),
        "=": lambda: every((_bound(">=", side, start), _bound("<", side, end), Static(on_boundary))),
        "<>": lambda: Some(
            (
                _bound("<", side, start),
                _bound(">=", side, end),
                Static(exp.NEQ(this=_timestamp(other), expression=start)),
            )
        ),
    }
    return rewritten[operator]()


def _of_difference(operator: str, side: exp.DateDiff, other: exp.Expr) -> Formula:
    """Return the truth of `datediff(t, c) operator n`, which counts the boundaries of a unit between both."""
    unit = unit_of(side.args.get("unit")) or "DAY"
    number = number_of(other)
    if number is None or number.denominator != 1 or unit not in UNITS:
        raise refusal(
            side, "a difference of dates is compared with something else than a whole number of days", _ADVICE
        )
    time, start = side.this, side.expression
    if not involves_time(time):
        time, start, number, operator = start, time, -number, _FLIPPED[operator]
    boundary = exp.Add(this=_truncated(_timestamp(start), unit), expression=_interval(int(number), unit))
    return _of_truncation(operator, time, unit, boundary, side)


def _truncated(node: exp.Expr, unit: str) -> exp.TimestampTrunc:
    return exp.TimestampTrunc(this=node, unit=exp.var(unit))


def _next(start: exp.Expr, unit: str) -> exp.Expr:
    return exp.Add(this=start, expression=_interval(1, unit))


def _interval(count: int, unit: str) -> exp.Interval:
    return exp.Interval(this=exp.Literal.string(str(count)), unit=exp.var(unit))


def _timestamp(node: exp.Expr) -> exp.Expr:
    """Return an expression whose type is a timestamp for sure."""
    inner = node.unnest()
    if isinstance(inner, exp.Column | exp.TimestampTrunc) or _is_timestamp_cast(inner):
        return inner
    return exp.cast(inner, "TIMESTAMP")


def _operand(node: exp.Expr) -> exp.Expr:
    """Return an operand of an addition: a literal text becomes a timestamp."""
    if isinstance(node, exp.Literal):
        return exp.cast(node, "TIMESTAMP")
    return exp.paren(node) if isinstance(node, exp.Binary | exp.Connector) else node


def _fixed(node: exp.Expr) -> exp.Expr:
    """Return an interval that may change sides: months may not, because they shorten to the month's length."""
    if has_calendar_units(node):
        raise refusal(
            node,
            "months or years are added to current time, which skips and repeats dates",
            "write the interval at the column: now() > created + INTERVAL 1 MONTH",
        )
    if not is_interval(node):
        raise refusal(node, f"{node.sql()} beside current time is no interval", _ADVICE)
    return exp.paren(node) if isinstance(node, exp.Binary) else node
