"""Intervals as ticks: one tick is a microsecond. Days have 24 hours, because the session's time zone is UTC."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from sqlglot import exp

UNITS: Final = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}
"""Ticks of each unit of fixed length."""
CALENDAR: Final = frozenset({"MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY", "MILLENNIUM"})
"""Units whose length depends on the date."""
_FUNCTIONS: Final = {
    "TOWEEKS": "WEEK",
    "TODAYS": "DAY",
    "TOHOURS": "HOUR",
    "TOMINUTES": "MINUTE",
    "TOSECONDS": "SECOND",
    "TOMILLISECONDS": "MILLISECOND",
    "TOMICROSECONDS": "MICROSECOND",
}


def unit_of(node: exp.Expr | None) -> str:
    """Return the name of a unit in the singular, in capitals."""
    name = node.name.upper() if node is not None else ""
    return name.removesuffix("S") if name.removesuffix("S") in UNITS.keys() | CALENDAR else name


def is_interval(node: exp.Expr) -> bool:
    """Whether an expression is an interval by its form, constant or not."""
    match node:
        case exp.Paren() | exp.Neg() | exp.Div():
            return is_interval(node.this)
        case exp.Interval():
            return True
        case exp.Mul():
            return is_interval(node.this) or is_interval(node.expression)
        case exp.Add() | exp.Sub():
            return is_interval(node.this) and is_interval(node.expression)
        case exp.Cast():
            return bool(node.to.this == exp.DType.INTERVAL)
        case exp.Func():
            return _function(node) is not None
    return False


def has_calendar_units(node: exp.Expr) -> bool:
    """Whether an interval holds months or years, whose length depends on the date."""
    return any(unit_of(part.args.get("unit")) in CALENDAR for part in node.find_all(exp.Interval)) or any(
        part.name.upper() in {"TO_MONTHS", "TO_YEARS"} for part in node.find_all(exp.Anonymous)
    )


def ticks_of(node: exp.Expr) -> int | None:
    """Return the microseconds of a constant interval of fixed length; None: it is none."""
    ticks = _ticks(node)
    return int(ticks) if ticks is not None and ticks.denominator == 1 else None


def interval(ticks: int) -> exp.Interval:
    """Return an interval as SQL, in the largest unit that divides it."""
    unit, size = next(
        (name, size) for name, size in UNITS.items() if name != "WEEK" and ticks % size == 0 and (ticks or size == 1)
    )
    return exp.Interval(this=exp.Literal.string(str(ticks // size)), unit=exp.var(unit))


def duration(ticks: int) -> str:
    """Return a length in words, in the largest unit that divides it; otherwise in seconds."""
    for name in ("DAY", "HOUR", "MINUTE"):
        if ticks % UNITS[name] == 0:
            number = ticks // UNITS[name]
            return f"{number} {name.lower()}{'' if number == 1 else 's'}"
    return f"{ticks / UNITS['SECOND']:.6f}".rstrip("0").rstrip(".") + " s"


def number_of(node: exp.Expr) -> Fraction | None:
    """Return the value of a numeric constant; None: it is none."""
    match node:
        case exp.Literal():
            try:
                return Fraction(node.name)
            except ValueError:
                return None
        case exp.Neg():
            value = number_of(node.this)
            return None if value is None else -value
        case exp.Paren():
            return number_of(node.this)
    return None


def _ticks(node: exp.Expr) -> Fraction | None:
    match node:
        case exp.Paren():
            return _ticks(node.this)
        case exp.Neg():
            inner = _ticks(node.this)
            return None if inner is None else -inner
        case exp.Interval():
            return _of_literal(node)
        case exp.Add() | exp.Sub():
            left, right = _ticks(node.this), _ticks(node.expression)
            if left is None or right is None:
                return None
            return left + right if isinstance(node, exp.Add) else left - right
        case exp.Mul():
            for factor, other in ((node.this, node.expression), (node.expression, node.this)):
                number, size = number_of(factor), _ticks(other)
                if number is not None and size is not None:
                    return number * size
            return None
        case exp.Func():
            unit, number = _function(node), number_of(node.this) if isinstance(node.this, exp.Expr) else None
            return None if unit is None or number is None else number * UNITS[unit]
    return None


def _of_literal(node: exp.Interval) -> Fraction | None:
    unit = node.args.get("unit")
    if node.this is None:
        return None
    if unit is not None:
        number = number_of(node.this)
        size = UNITS.get(unit_of(unit))
        return None if number is None or size is None else number * size
    words = node.this.name.split()
    total = Fraction(0)
    for count, word in zip(words[::2], words[1::2], strict=False):
        number = number_of(exp.Literal.number(count))
        size = UNITS.get(unit_of(exp.var(word)))
        if number is None or size is None:
            return None
        total += number * size
    return total if words and len(words) % 2 == 0 else None


def _function(node: exp.Func) -> str | None:
    return _FUNCTIONS.get(type(node).__name__.upper())
