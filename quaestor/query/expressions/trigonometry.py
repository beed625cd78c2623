"""Trigonometric and hyperbolic functions: doubles, or Decimal128 where the operand is one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from bson import Decimal128

from quaestor.query.expressions import decimal_functions as decimals
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import fixed
from quaestor.query.expressions.kinds import is_nullish
from quaestor.query.expressions.nodes import Compiled, Operator, Scope
from quaestor.query.expressions.numeric import decimal128, to_decimal, to_double
from quaestor.query.expressions.rounding import number
from quaestor.query.expressions.text import double_text
from quaestor.query.optional_parts import libmp

_OPEN: Final = (-math.inf, math.inf, "(-inf,inf)")
_UNIT: Final = (-1.0, 1.0, "[-1,1]")
_FROM_ONE: Final = (1.0, math.inf, "[1,inf]")
_ANY: Final = (-math.inf, math.inf, "")
_RADIANS_PER_DEGREE: Final = math.pi / 180
_DEGREES_PER_RADIAN: Final = 180 / math.pi

Domain = tuple[float, float, str]


def _function(domain: Domain, double: Callable[[float], float], decimal: Callable[[Decimal], Decimal]) -> Operator:
    least, most, text = domain
    is_open = domain is _OPEN

    def apply(name: str, value: Any) -> Any:
        if is_nullish(value):
            return None
        argument = to_double(number(name, value))
        if math.isnan(argument):
            return Decimal128("NaN") if isinstance(value, Decimal128) else argument
        exact = value.to_decimal() if isinstance(value, Decimal128) else argument
        if not least <= exact <= most or (is_open and abs(exact) == math.inf):
            raise ExpressionError(f"cannot apply {name} to {double_text(argument)}, value must be in {text}")
        if isinstance(value, Decimal128):
            return _of_decimal(value.to_decimal(), argument, double, decimal)
        return _of_double(argument, double)

    return fixed(1, apply, named=True)


def _of_double(argument: float, double: Callable[[float], float]) -> float:
    try:
        return double(argument)
    except OverflowError:
        return math.copysign(math.inf, argument) if double is math.sinh else math.inf
    except ValueError:  # a pole: atanh(1), atanh(-1)
        return math.copysign(math.inf, argument)


def _of_decimal(
    exact: Decimal, argument: float, double: Callable[[float], float], decimal: Callable[[Decimal], Decimal]
) -> Decimal128:
    limit = _of_double(argument, double)
    if not exact.is_finite() or (double is math.atanh and exact in (1, -1)):
        return decimal128(
            Decimal(limit) if math.isinf(limit) else decimal(Decimal(10) ** 60 * (1 if argument > 0 else -1))
        )
    return decimal128(decimal(exact))


def _atan2(y: Any, x: Any) -> Any:
    number("$atan2", y)
    if is_nullish(x):
        return None
    number("$atan2", x)
    if isinstance(y, Decimal128) or isinstance(x, Decimal128):
        sides = to_decimal(y), to_decimal(x)
        if any(side.is_nan() for side in sides):
            return Decimal128("NaN")
        if any(side.is_infinite() for side in sides):
            sides = _direction(sides[0]), _direction(sides[1])
        return decimal128(decimals.atan2(*sides))
    return math.atan2(to_double(y), to_double(x))


def _direction(side: Decimal) -> Decimal:
    """Return a side as seen from infinity, where every finite number is zero."""
    return Decimal(1 if side.is_infinite() else 0).copy_sign(side)


def _with_decimals(operator: Operator) -> Operator:
    """Return the operator, refused where decimals cannot be computed: any record may hold a decimal."""

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        libmp.require()
        return operator(name, operand, scope)

    return build


_OPERATORS: Final[Mapping[str, Operator]] = {
    "$sin": _function(_OPEN, math.sin, decimals.sin),
    "$cos": _function(_OPEN, math.cos, decimals.cos),
    "$tan": _function(_OPEN, math.tan, decimals.tan),
    "$asin": _function(_UNIT, math.asin, decimals.asin),
    "$acos": _function(_UNIT, math.acos, decimals.acos),
    "$atan": _function(_ANY, math.atan, decimals.atan),
    "$sinh": _function(_ANY, math.sinh, decimals.sinh),
    "$cosh": _function(_ANY, math.cosh, decimals.cosh),
    "$tanh": _function(_ANY, math.tanh, decimals.tanh),
    "$asinh": _function(_ANY, math.asinh, decimals.asinh),
    "$acosh": _function(_FROM_ONE, math.acosh, decimals.acosh),
    "$atanh": _function(_UNIT, math.atanh, decimals.atanh),
    "$degreesToRadians": _function(_ANY, lambda value: value * _RADIANS_PER_DEGREE, decimals.radians),
    "$radiansToDegrees": _function(_ANY, lambda value: value * _DEGREES_PER_RADIAN, decimals.degrees),
    "$atan2": fixed(2, _atan2, deciding=1),
}
OPERATORS: Final[Mapping[str, Operator]] = {name: _with_decimals(operator) for name, operator in _OPERATORS.items()}
