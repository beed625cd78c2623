"""`$add`, `$subtract`, `$multiply`, `$divide`, `$mod`: over all numeric types, and dates where they make sense.

Null and missing make the result null, in operand order: `{$add: [null, "x"]}` is null, `{$add: ["x", null]}` fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from bson import Int64

from quaestor.invalidation.query.expressions.dates import date, date_ms, in_range
from quaestor.invalidation.query.expressions.errors import ExpressionError
from quaestor.invalidation.query.expressions.forms import associative, fixed
from quaestor.invalidation.query.expressions.kinds import INT64_MIN, NUMERIC, is_nullish, kind_of
from quaestor.invalidation.query.expressions.nodes import Operator
from quaestor.invalidation.query.expressions.numeric import (
    DECIMAL,
    DoubleDouble,
    as_int32,
    decimal128,
    decimal_remainder,
    fits_long,
    int_or_long,
    integer,
    to_decimal,
    to_double,
    to_long,
    widest,
)


def _add(values: Iterable[Any]) -> Any:
    kinds: list[str] = []
    total = DoubleDouble()
    decimals = Decimal(0)
    moment = None
    for value in values:
        kind = kind_of(value)
        if kind == "date":
            if moment is not None:
                raise ExpressionError("only one date allowed in an $add expression")
            moment = date_ms(value)
            total.add(moment)
            continue
        if is_nullish(value):
            return None
        if kind not in NUMERIC:
            raise ExpressionError(f"$add only supports numeric or date types, not {kind}")
        kinds.append(kind)
        if kind == "decimal":
            decimals = DECIMAL.add(decimals, value.to_decimal())
        else:
            total.add(value)
    kind = widest(kinds)
    if moment is not None:
        return _moved_date(total, decimals if kind == "decimal" else None)
    return total_of(kind, total, decimals)


def total_of(kind: str, total: DoubleDouble, decimals: Decimal) -> Any:
    """A sum in its type: an int grows into a long, both into a double where they overflow."""
    if kind == "decimal":
        return decimal128(DECIMAL.add(decimals, total.decimal()))
    whole = total.whole() if kind != "double" else None
    if whole is None or not fits_long(whole):
        return total.double()
    return Int64(whole) if kind == "long" else int_or_long(whole)


def _moved_date(total: DoubleDouble, decimals: Decimal | None) -> Any:
    if decimals is not None:
        return date(to_long(decimal128(DECIMAL.add(decimals, total.decimal()))))
    whole = total.whole()
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
