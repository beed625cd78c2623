"""`$add`, `$subtract`, `$multiply`, `$divide`, `$mod`: over all numeric types, and over dates where mongod allows it.

Null and missing make the result null, in operand order: `{$add: [null, "x"]}` is null, `{$add: ["x", null]}` fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from bson import Decimal128, Int64

from quaestor.query.expressions.dates import date, date_ms, in_range
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import associative, fixed
from quaestor.query.expressions.kinds import INT64_MIN, NUMERIC, is_nullish, kind_of
from quaestor.query.expressions.nodes import Operator
from quaestor.query.expressions.numeric import (
    DECIMAL,
    DoubleDouble,
    as_int32,
    decimal128,
    decimal_remainder,
    fits_long,
    integer,
    to_decimal,
    to_double,
    to_long,
    widest,
)


def _add(values: Iterable[Any]) -> Any:
    kinds: list[str] = []
    numbers: list[Any] = []
    has_date = False
    for value in values:
        kind = kind_of(value)
        if kind == "date":
            if has_date:
                raise ExpressionError("only one date allowed in an $add expression")
            has_date = True
            numbers.append(Int64(date_ms(value)))
            continue
        if is_nullish(value):
            return None
        if kind not in NUMERIC:
            raise ExpressionError(f"$add only supports numeric or date types, not {kind}")
        kinds.append(kind)
        numbers.append(value)
    kind = widest(kinds)
    return _moved_date(kind, numbers) if has_date else total_of(kind, numbers)


def total_of(kind: str, numbers: Sequence[Any]) -> Any:
    """Return the sum of numbers in the widest of their types: an int grows into a long, both into a double on overflow."""
    if kind in ("int", "long"):
        whole = sum(map(int, numbers))
        return integer(whole, kind) if fits_long(whole) else DoubleDouble(numbers).double()
    if kind == "decimal":
        return decimal128(decimal_total(numbers))
    return DoubleDouble(numbers).double()


def decimal_total(numbers: Sequence[Any]) -> Decimal:
    """Return the sum where one of the numbers is a Decimal128: decimals are added apart from the others."""
    decimals = Decimal(0)
    for number in numbers:
        if isinstance(number, Decimal128):
            decimals = DECIMAL.add(decimals, number.to_decimal())
    return DECIMAL.add(
        decimals, DoubleDouble(number for number in numbers if not isinstance(number, Decimal128)).decimal()
    )


def _moved_date(kind: str, numbers: Sequence[Any]) -> Any:
    if kind == "decimal":
        return date(to_long(decimal128(decimal_total(numbers))))
    whole = DoubleDouble(numbers).whole()
    if whole is None:
        raise ExpressionError("date overflow in $add")
    return date(in_range(whole, "$add"))


def _subtract(left: Any, right: Any) -> Any:
    if is_nullish(left) or is_nullish(right):
        return None
    left_kind, right_kind = kind_of(left), kind_of(right)
    if left_kind == "date":
        if right_kind == "date":
            return Int64((date_ms(left) - date_ms(right) + 2**63) % 2**64 - 2**63)
        if right_kind in NUMERIC:
            span = to_long(right)
            if span == INT64_MIN:
                raise ExpressionError("Cannot negate the minimum duration")
            return date(in_range(date_ms(left) - span, "$subtract"))
    if left_kind not in NUMERIC or right_kind not in NUMERIC:
        raise ExpressionError(f"can't $subtract {right_kind} from {left_kind}")
    kind = widest((left_kind, right_kind))
    if kind == "decimal":
        return decimal128(DECIMAL.subtract(to_decimal(left), to_decimal(right)))
    if kind == "double":
        return to_double(left) - to_double(right)
    return integer(int(left) - int(right), kind)


def _multiply(values: Iterable[Any]) -> Any:
    kind = "int"
    whole, double, decimal = 1, 1.0, Decimal(1)
    for value in values:
        if is_nullish(value):
            return None
        value_kind = kind_of(value)
        if value_kind not in NUMERIC:
            raise ExpressionError(f"$multiply only supports numeric types, not {value_kind}")
        previous, kind = kind, widest((kind, value_kind))
        if kind == "decimal":
            if previous != "decimal":
                decimal = to_decimal(double if previous == "double" else whole)
            decimal = DECIMAL.multiply(decimal, to_decimal(value))
            continue
        double *= to_double(value)
        if kind != "double":
            whole *= int(value)
            if not fits_long(whole):
                kind = "double"
    if kind == "decimal":
        return decimal128(decimal)
    return double if kind == "double" else integer(whole, kind)


def _numeric_pair(name: str, left: Any, right: Any) -> str:
    left_kind, right_kind = kind_of(left), kind_of(right)
    if left_kind not in NUMERIC or right_kind not in NUMERIC:
        raise ExpressionError(f"{name} only supports numeric types, not {left_kind} and {right_kind}")
    return widest((left_kind, right_kind))


def _divide(left: Any, right: Any) -> Any:
    if is_nullish(left) or is_nullish(right):
        return None
    kind = _numeric_pair("$divide", left, right)
    if to_double(right) == 0 and to_decimal(right) == 0:
        raise ExpressionError("can't $divide by zero")
    if kind == "decimal":
        return decimal128(DECIMAL.divide(to_decimal(left), to_decimal(right)))
    return to_double(left) / to_double(right)


def _mod(left: Any, right: Any) -> Any:
    if is_nullish(left) or is_nullish(right):
        return None
    kind = _numeric_pair("$mod", left, right)
    if to_double(right) == 0 and to_decimal(right) == 0:
        raise ExpressionError("can't $mod by zero")
    if kind == "decimal":
        return decimal128(decimal_remainder(to_decimal(left), to_decimal(right)))
    if isinstance(left, float) or (isinstance(right, float) and as_int32(right) is None):
        dividend = to_double(left)
        return math.fmod(dividend, to_double(right)) if math.isfinite(dividend) else math.nan
    dividend, divisor = to_long(left), to_long(right)
    rest = abs(dividend) % abs(divisor)
    return integer(-rest if dividend < 0 else rest, "long" if "long" in (kind_of(left), kind_of(right)) else "int")


OPERATORS: Final[Mapping[str, Operator]] = {
    "$add": associative(_add, commutative=True),
    "$subtract": fixed(2, _subtract),
    "$multiply": associative(_multiply, commutative=True),
    "$divide": fixed(2, _divide),
    "$mod": fixed(2, _mod),
}
