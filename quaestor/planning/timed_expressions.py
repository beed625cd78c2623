"""Comparisons of a field with the clock in `$expr`: each form becomes one field beside one moment.

| form | read as |
|---|---|
| `{$lt: ["$f", now]}`, also with the sides exchanged | f beside now |
| `{$add: ["$f", n]}`, `$subtract`, `$dateAdd`, `$dateSubtract` of constants, on either side | the constant goes to the moment |
| `{$gt: [{$subtract: [now, "$f"]}, n]}`, also `["$f", now]` | f beside now - n, or now + n |
| `{$dateTrunc: {date: now, unit: "hour"}}`, of a second, a minute, an hour, a day | a floored moment |

A field that is no date makes none of these comparisons true or false by time alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor, prod
from typing import Any, Final, NoReturn

from quaestor.errors import UnsupportedQueryError
from quaestor.planning.moments import MARK, Moment, moment_of

_ORDERING: Final = frozenset({"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"})
_UNITS_MS: Final = {
    "millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_SHIFTING: Final = {"startDate", "unit", "amount"}
_FLOORS: Final = ("second", "minute", "hour", "day")


def compared(expression: Any) -> Iterator[tuple[str, Moment]]:
    """Iterate over the fields that an expression compares with moments.

    Raises UnsupportedQueryError for any other use of a moment.
    """
    if not _follows(expression):
        return
    name, operand = _only(expression)
    if name in ("$and", "$or", "$not"):
        for clause in operand if isinstance(operand, list | tuple) else (operand,):
            yield from compared(clause)
    elif name in _ORDERING and isinstance(operand, list | tuple) and len(operand) == 2:
        left, right = operand
        yield _pair(left, right) if _follows(left) else _pair(right, left)
    else:
        _refuse(name)


def _pair(following: Any, other: Any) -> tuple[str, Moment]:
    """Return field and moment of one comparison. following: the side with the moment."""
    moment = _moment(following)
    if moment is not None:
        path, shift_ms = _field(other)
        return path, moment.shifted(-shift_ms)
    name, operand = _only(following)
    amount = _number(other)
    if name != "$subtract" or amount is None or len(operand) != 2:
        _refuse(name)
    first, second = operand
    moment = _moment(first)
    if moment is not None:
        path, shift_ms = _field(second)
        return path, moment.shifted(-shift_ms - floor(amount))
    moment = _moment(second)
    if moment is None:
        _refuse(name)
    path, shift_ms = _field(first)
    return path, moment.shifted(floor(amount) - shift_ms)


def _moment(expression: Any) -> Moment | None:
    moment = moment_of(expression)
    if moment is not None or not isinstance(expression, Mapping) or len(expression) != 1:
        return moment
    name, operand = _only(expression)
    if name == "$dateTrunc":
        return _truncated(operand)
    base, shift_ms = _shift(name, operand)
    moment = None if base is None else _moment(base)
    return None if moment is None else moment.shifted(shift_ms)


def _truncated(operand: Any) -> Moment | None:
    if not isinstance(operand, Mapping) or operand.keys() != {"date", "unit"} or operand["unit"] not in _FLOORS:
        return None
    moment = _moment(operand["date"])
    return None if moment is None else moment.floored(_UNITS_MS[operand["unit"]])


def _field(expression: Any) -> tuple[str, int]:
    """Return the path of a field and the milliseconds that are added to it."""
    if isinstance(expression, str) and expression[:1] == "$" and expression[1:2] not in ("$", ""):
        return expression[1:], 0
    name, operand = _only(expression)
    base, shift_ms = _shift(name, operand)
    if base is None:
        _refuse(name)
    path, further_ms = _field(base)
    return path, shift_ms + further_ms


def _shift(name: str, operand: Any) -> tuple[Any, int]:
    """Return what an expression shifts, and by how many milliseconds; None for another expression."""
    if name in ("$add", "$subtract") and isinstance(operand, list | tuple) and len(operand) == 2:
        base, amount = operand if name == "$subtract" or _number(operand[0]) is None else reversed(operand)
        number = _number(amount)
        if number is not None and number == floor(number):
            return base, floor(number) if name == "$add" else -floor(number)
    if name in ("$dateAdd", "$dateSubtract") and isinstance(operand, Mapping) and operand.keys() == _SHIFTING:
        number, unit_ms = _number(operand["amount"]), _UNITS_MS.get(operand["unit"])
        if unit_ms is not None and number is not None and number == floor(number):
            by_ms = floor(number) * unit_ms
            return operand["startDate"], by_ms if name == "$dateAdd" else -by_ms
    return None, 0


def _number(value: Any) -> float | None:
    """Return a constant number, also a product of numbers; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if abs(value) < 1e15 else None  # false for NaN
    if isinstance(value, Mapping) and list(value) == ["$multiply"] and isinstance(value["$multiply"], list | tuple):
        factors = [_number(factor) for factor in value["$multiply"]]
        return None if None in factors else _number(prod(factor for factor in factors if factor is not None))
    return None


def _follows(value: Any) -> bool:
    if isinstance(value, Mapping):
        return MARK in value or any(map(_follows, value.values()))
    return isinstance(value, list | tuple) and any(map(_follows, value))


def _only(expression: Any) -> tuple[str, Any]:
    if not isinstance(expression, Mapping) or len(expression) != 1:
        raise UnsupportedQueryError("the clock beside what is no field and no constant")
    ((name, operand),) = expression.items()
    return name, operand


def _refuse(name: str) -> NoReturn:
    raise UnsupportedQueryError(f"the clock in {name} of $expr")
