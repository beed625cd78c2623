"""Trigonometric and hyperbolic functions of decimals, correct to more than 34 digits. Arguments are finite.

mpmath computes them on binary numbers. The package is loaded at first use: few queries compute with decimals. Loading takes as
long as all the rest of the query language.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import cache
from typing import Any, Final

from quaestor.query.optional_parts import libmp

_DIGITS: Final = 50
_CONTEXT: Final = Context(prec=_DIGITS, Emax=999_999, Emin=-999_999, traps=[])
_BITS: Final = 180
"""Precision of a result: about 54 digits."""
_ARGUMENT_BITS: Final = 400
"""Precision of an argument with a fraction: enough to distinguish 34 digits beside a zero or a pole of the function."""
_BEYOND_DECIMALS: Final = 15_000
"""e to this power is larger than every Decimal128."""

Function = Callable[[Decimal], Decimal]


def _function(name: str, *, grows: bool = False) -> Function:
    """Return mpmath's function of this name.

    grows: exponentially, so that arguments are limited to the range with a result.
    """

    def function(x: Decimal) -> Decimal:
        if grows and abs(x) > _BEYOND_DECIMALS:
            x = Decimal(_BEYOND_DECIMALS).copy_sign(x)
        result = _decimal(getattr(libmp, f"mpf_{name}")(_binary(x), _BITS, "n"))
        return x if x.is_zero() and result.is_zero() else result

    return function


def _binary(x: Decimal) -> Any:
    """Return the number in mpmath's form: exact if it is whole."""
    numerator, denominator = x.as_integer_ratio()
    if denominator == 1:
        return libmp.from_int(numerator)
    return libmp.from_rational(numerator, denominator, _ARGUMENT_BITS, "n")


def _decimal(number: Any) -> Decimal:
    sign, mantissa, exponent, _ = number
    whole = int(-mantissa if sign else mantissa)  # the mantissa may be a number of gmpy2
    with localcontext(_CONTEXT):
        return Decimal(whole) * Decimal(2) ** int(exponent) if whole else Decimal(0)


@cache
def pi() -> Decimal:
    """Return pi, to 50 digits."""
    return _decimal(libmp.mpf_pi(_BITS, "n"))


def radians(degrees: Decimal) -> Decimal:
    """Return an angle in radians."""
    return _CONTEXT.divide(_CONTEXT.multiply(degrees, pi()), Decimal(180))


def degrees(radians: Decimal) -> Decimal:
    """Return an angle in degrees."""
    return _CONTEXT.divide(_CONTEXT.multiply(radians, Decimal(180)), pi())


sin: Final = _function("sin")
cos: Final = _function("cos")
tan: Final = _function("tan")
asin: Final = _function("asin")
acos: Final = _function("acos")
atan: Final = _function("atan")
sinh: Final = _function("sinh", grows=True)
cosh: Final = _function("cosh", grows=True)
tanh: Final = _function("tanh", grows=True)
asinh: Final = _function("asinh")
acosh: Final = _function("acosh")
atanh: Final = _function("atanh")


def atan2(y: Decimal, x: Decimal) -> Decimal:
    """Return the angle of the point (x, y)."""
    with localcontext(_CONTEXT):
        if x > 0:
            return atan(y / x)
        if x == 0 and y == 0:
            return (pi() if x.is_signed() else x).copy_sign(y)
        if x == 0:
            return (pi() / 2).copy_sign(y)
        return atan(y / x) + pi().copy_sign(y)
