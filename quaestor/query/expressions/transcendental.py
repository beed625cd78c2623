"""Powers, roots, exponentials and logarithms: doubles, or Decimal128 where an operand is one.

The last digit of a Decimal128 may differ from mongod's, whose library does not always round correctly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Final

from bson import Decimal128

from quaestor.errors import UncertainMatchError, UnsupportedQueryError
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import fixed
from quaestor.query.expressions.kinds import NUMERIC, is_nullish, kind_of
from quaestor.query.expressions.nodes import Operator
from quaestor.query.expressions.numeric import DECIMAL, decimal128, fits_long, integer, to_decimal, to_double, widest
from quaestor.query.expressions.rounding import number
from quaestor.query.expressions.text import double_text

_PRECISE: Final = Context(prec=60, traps=[])
_FIRST_INFINITE: Final = _PRECISE.multiply(Decimal(DECIMAL.Emax + 1), _PRECISE.ln(Decimal(10)))
"""Logarithm of the smallest power of ten that is larger than every Decimal128."""
_CUT_OFF: Final = Decimal("1e-28")


def _sqrt(name: str, value: Any) -> Any:
    if is_nullish(value):
        return None
    double = to_double(number(name, value))
    if double < 0:
        raise ExpressionError("$sqrt's argument must be greater than or equal to 0")
    return decimal128(DECIMAL.sqrt(value.to_decimal())) if isinstance(value, Decimal128) else math.sqrt(double)


def _exp(name: str, value: Any) -> Any:
    if is_nullish(value):
        return None
    number(name, value)
    if isinstance(value, Decimal128):
        return decimal128(DECIMAL.exp(value.to_decimal()))
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _logarithm(name: str, value: Any) -> Any:
    """Compute `$ln` or `$log10`."""
    if is_nullish(value):
        return None
    double = to_double(number(name, value))
    if isinstance(value, Decimal128) and not math.isnan(double) and value.to_decimal() > 0:
        exact = value.to_decimal()
        return decimal128(DECIMAL.ln(exact) if name == "$ln" else DECIMAL.log10(exact))
    if double <= 0:
        raise ExpressionError(f"{name}'s argument must be a positive number, but is {double_text(double)}")
    return math.log(double) if name == "$ln" else math.log10(double)


def _log(value: Any, base: Any) -> Any:
    if is_nullish(value) or is_nullish(base):
        return None
    for operand, role in ((value, "argument"), (base, "base")):
        if kind_of(operand) not in NUMERIC:
            raise ExpressionError(f"$log's {role} must be numeric, not {kind_of(operand)}")
    if to_double(value) <= 0:
        raise ExpressionError(f"$log's argument must be a positive number, but is {value}")
    if to_double(base) <= 0 or to_double(base) == 1:
        raise ExpressionError(f"$log's base must be a positive number not equal to 1, but is {base}")
    if widest((kind_of(value), kind_of(base))) == "decimal":
        return _decimal_log(to_decimal(value), to_decimal(base))
    return math.log(to_double(value)) / math.log(to_double(base))


def _decimal_log(value: Decimal, base: Decimal) -> Any:
    if value.is_nan() or base.is_nan():
        return math.nan
    if base == 10:
        return decimal128(DECIMAL.log10(value))
    if base == 2:
        return decimal128(DECIMAL.divide(DECIMAL.ln(value), DECIMAL.ln(base)))
    # mongod 6.0 divides the natural logarithm by the base itself, and later servers may correct that.
    raise UnsupportedQueryError("$log of a Decimal128 to a base other than 2 and 10 differs between servers")


def _pow(base: Any, exponent: Any) -> Any:
    if is_nullish(base) or is_nullish(exponent):
        return None
    for operand, role in ((base, "base"), (exponent, "exponent")):
        if kind_of(operand) not in NUMERIC:
            raise ExpressionError(f"$pow's {role} must be numeric, not {kind_of(operand)}")
    kind = widest((kind_of(base), kind_of(exponent)))
    if to_double(base) == 0 and to_decimal(base) == 0 and _is_negative(exponent, kind):
        raise ExpressionError("$pow cannot take a base of 0 and a negative exponent")
    if kind == "decimal":
        return decimal128(_decimal_power(to_decimal(base), to_decimal(exponent)))
    if kind == "double":
        return _double_power(to_double(base), to_double(exponent))
    whole = _integer_power(int(base), int(exponent))
    return integer(whole, kind) if whole is not None else _double_power(float(base), float(exponent))


def _is_negative(exponent: Any, kind: str) -> bool:
    """Whether an exponent counts as negative: as a Decimal128 its sign alone counts, even of a zero."""
    return to_decimal(exponent).is_signed() if kind == "decimal" else bool(exponent < 0)


def _integer_power(base: int, exponent: int) -> int | None:
    """Return the exact power if it is an integer that fits a long; None otherwise."""
    if base in (1, -1):
        return base if exponent % 2 else 1
    if exponent < 0 or (exponent > 63 and base != 0):
        return None
    power = base**exponent if base else int(exponent == 0)
    return power if fits_long(power) else None


def _double_power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and math.fmod(exponent, 2) else math.inf
    except ValueError:
        return math.nan


def _decimal_power(base: Decimal, exponent: Decimal) -> Decimal:
    if exponent.is_infinite() or (base.is_infinite() and exponent != exponent.to_integral_value()):
        base = base.copy_abs()
    if exponent.is_zero() and base == 10:
        raise UncertainMatchError(
            "10 to the power of 0 as a Decimal128 is 0 in mongod 6.0; later servers may correct that"
        )
    if exponent.is_zero() or base == 1:
        return Decimal(1)
    power = DECIMAL.power(base, exponent)
    if not base.is_finite() or not (power.is_infinite() or power.adjusted() == DECIMAL.Emax):
        return power
    if _is_at_the_limit(base, exponent, negative=power.is_signed()):
        raise UncertainMatchError(
            "a power beside the largest Decimal128: servers round it to that value or to infinity"
        )
    return Decimal("Infinity") if power.is_infinite() else power


def _is_at_the_limit(base: Decimal, exponent: Decimal, *, negative: bool) -> bool:
    """Whether mongod's library may return infinity for a finite power or the reverse, or plus infinity for minus infinity.

    The library cuts the logarithm of the base off after 28 decimals, raises e to its product with the exponent, and corrects
    by the rest. A result that is infinite before the correction is plus infinity, also if the power is negative. A result
    that becomes infinite by the correction keeps its sign.
    """
    if exponent.is_infinite():
        return False
    above = _PRECISE.subtract(_PRECISE.multiply(exponent, _PRECISE.ln(base.copy_abs())), _FIRST_INFINITE)
    return -_CUT_OFF <= above <= _CUT_OFF * (1 + abs(exponent) if negative else 1)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$sqrt": fixed(1, _sqrt, named=True),
    "$exp": fixed(1, _exp, named=True),
    "$ln": fixed(1, _logarithm, named=True),
    "$log10": fixed(1, _logarithm, named=True),
    "$log": fixed(2, _log),
    "$pow": fixed(2, _pow),
}
