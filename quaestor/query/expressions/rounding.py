"""`$abs`, `$ceil`, `$floor`, `$round`, `$trunc`: results of the operand's own type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from bson import Decimal128, Int64

from quaestor.errors import UnsupportedQueryError
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import fixed, ranged
from quaestor.query.expressions.kinds import INT32_MIN, INT64_MIN, NUMERIC, is_nullish, kind_of
from quaestor.query.expressions.nodes import Operator
from quaestor.query.expressions.numeric import DECIMAL, decimal128, fits_long, integer, to_long

_LEAST_PLACE: Final = -20
_MOST_PLACE: Final = 100


def number(name: str, value: Any) -> Any:
    """Return value, if it is a number. Raises ExpressionError otherwise."""
    if kind_of(value) not in NUMERIC:
        raise ExpressionError(f"{name} only supports numeric types, not {kind_of(value)}")
    return value


def _abs(name: str, value: Any) -> Any:
    if is_nullish(value):
        return None
    number(name, value)
    if isinstance(value, Decimal128):
        return decimal128(value.to_decimal().copy_abs())
    if isinstance(value, float):
        return math.fabs(value)
    if value == INT64_MIN:
        raise ExpressionError("can't take $abs of long long min")
    return integer(abs(int(value)), kind_of(value))


def _whole(double: Callable[[float], float], mode: str) -> Operator:
    """Return `$ceil` or `$floor`."""

    def towards(name: str, value: Any) -> Any:
        if is_nullish(value):
            return None
        number(name, value)
        if isinstance(value, Decimal128):
            # Beyond 34 digits, and for infinities, the result is NaN as in mongod.
            return decimal128(value.to_decimal().quantize(Decimal(1), rounding=mode, context=DECIMAL))
        if isinstance(value, float) and math.isfinite(value):
            return math.copysign(double(value), value)
        return value

    return fixed(1, towards, named=True)


def _to_place(mode: str) -> Operator:
    """Return `$round` or `$trunc`."""

    def to_place(name: str, value: Any, place: Any = 0) -> Any:
        if is_nullish(value):
            return None
        number(name, value)
        if is_nullish(place):
            return None
        digits = _place(name, place)
        if isinstance(value, Decimal128):
            return decimal128(_quantized(value.to_decimal(), digits, mode))
        if isinstance(value, float):
            if not math.isfinite(value) or not value:
                return value
            return float(_quantized(DECIMAL.plus(Decimal(value)), digits, mode))
        if digits >= 0:
            return value
        return _rounded_integer(name, value, digits, mode)

    return ranged(1, 2, to_place, named=True, deciding=1)


def _rounded_integer(name: str, value: Any, digits: int, mode: str) -> Any:
    whole = int(_quantized(Decimal(value), digits, mode))
    if not fits_long(whole):
        raise ExpressionError(
            f"invalid conversion from Decimal128 result in {name} resulting from arguments: [{value}, {digits}]"
        )
    if kind_of(value) == "int" and whole < INT32_MIN:
        # mongod 6.0 wraps around here, and later servers may correct that.
        raise UnsupportedQueryError(f"{name} of an int below the smallest int differs between servers")
    return Int64(whole) if kind_of(value) == "long" else integer(whole, "int")


def _place(name: str, place: Any) -> int:
    if kind_of(place) not in NUMERIC:
        raise ExpressionError(f"can't convert from BSON type {kind_of(place)} to long")
    digits = to_long(place)
    if place != digits and not (isinstance(place, Decimal128) and place.to_decimal() == digits):
        raise ExpressionError(f"precision argument to  {name} must be a integral value")
    if not _LEAST_PLACE <= digits <= _MOST_PLACE:
        raise ExpressionError(
            f"cannot apply {name} with precision value {digits} value must be in [{_LEAST_PLACE}, {_MOST_PLACE}]"
        )
    return digits


def _quantized(value: Decimal, digits: int, mode: str) -> Decimal:
    """Return value rounded to 10**-digits, or padded to it as far as 34 digits allow."""
    if not value.is_finite():
        return value
    exponent = max(-digits, value.adjusted() - 33 if value else -digits)
    context = DECIMAL.copy()
    context.prec = 70
    return value.quantize(Decimal((0, (1,), exponent)), rounding=mode, context=context)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$abs": fixed(1, _abs, named=True),
    "$ceil": _whole(math.ceil, ROUND_CEILING),
    "$floor": _whole(math.floor, ROUND_FLOOR),
    "$round": _to_place(ROUND_HALF_EVEN),
    "$trunc": _to_place(ROUND_DOWN),
}
