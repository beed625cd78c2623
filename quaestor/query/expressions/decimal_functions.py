"""Trigonometric and hyperbolic functions of decimals, to 34 digits and then some. Arguments are finite."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Final

_DIGITS: Final = 50
_CONTEXT: Final = Context(prec=_DIGITS, Emax=999_999, Emin=-999_999, traps=[])


def _precisely(function: Callable[[Decimal], Decimal]) -> Callable[[Decimal], Decimal]:
    def precise(x: Decimal) -> Decimal:
        with localcontext(_CONTEXT):
            return function(x)

    return precise


@lru_cache(maxsize=8)
def pi(digits: int = _DIGITS) -> Decimal:
    """Machin's formula: pi/4 = 4 arctan(1/5) - arctan(1/239)."""
    one = 10 ** (digits + 10)

    def arctan_inverse(n: int) -> int:
        power: int = one // n
        total = power
        k, sign = 3, -1
        while power:
            power //= n * n
            total += sign * (power // k)
            k, sign = k + 2, -sign
        return total

    return Decimal(4 * (4 * arctan_inverse(5) - arctan_inverse(239))).scaleb(-digits - 10)


def _reduced(x: Decimal) -> Decimal:
    """x modulo 2 pi, between -pi and pi."""
    with localcontext(_CONTEXT) as context:
        context.prec = _DIGITS + max(x.adjusted(), 0) + 10
        circle = 2 * pi(context.prec)
        rest = x - (x / circle).to_integral_value() * circle
    return +rest


def _series(x: Decimal, term: Decimal, first: int, sign: int) -> Decimal:
    """The alternating (sign -1) or plain (1) series of x**k/k! in steps of two."""
    total, square, k = term, x * x * sign, first
    while True:
        term = term * square / ((k + 1) * (k + 2))
        if total + term == total:
            return total
        total, k = total + term, k + 2


@_precisely
def sin(x: Decimal) -> Decimal:
    x = _reduced(x)
    return _series(x, x, 1, -1)


@_precisely
def cos(x: Decimal) -> Decimal:
    return _series(_reduced(x), Decimal(1), 0, -1)


@_precisely
def tan(x: Decimal) -> Decimal:
    return sin(x) / cos(x)


@_precisely
def atan(x: Decimal) -> Decimal:
    if x < 0:
        return -atan(-x)
    if x > 1:
        return pi() / 2 - atan(1 / x)
    halvings = 0
    while x > Decimal("0.05"):
        x = x / (1 + (1 + x * x).sqrt())
        halvings += 1
    total = power = x
    k = 1
    while True:
        power *= -x * x
        k += 2
        if total + power / k == total:
            return total * Decimal(2**halvings)
        total += power / k


@_precisely
def asin(x: Decimal) -> Decimal:
    if abs(x) == 1:
        return pi() / 2 * x
    return atan(x / ((1 - x) * (1 + x)).sqrt())


@_precisely
def acos(x: Decimal) -> Decimal:
    return Decimal(0) if x == 1 else pi() / 2 - asin(x)


@_precisely
def sinh(x: Decimal) -> Decimal:
    if abs(x) < 1:
        return _series(x, x, 1, 1)
    return (x.exp() - (-x).exp()) / 2


@_precisely
def cosh(x: Decimal) -> Decimal:
    return (x.exp() + (-x).exp()) / 2


@_precisely
def tanh(x: Decimal) -> Decimal:
    if abs(x) > 100:
        return Decimal(1).copy_sign(x)
    return sinh(x) / cosh(x)


@_precisely
def asinh(x: Decimal) -> Decimal:
    if x < 0:
        return -asinh(-x)
    if x < Decimal("1e-10"):
        return x - x**3 / 6
    return (x + (x * x + 1).sqrt()).ln()


@_precisely
def acosh(x: Decimal) -> Decimal:
    return (x + (x * x - 1).sqrt()).ln()


@_precisely
def atanh(x: Decimal) -> Decimal:
    if abs(x) < Decimal("1e-10"):
        return x + x**3 / 3
    return ((1 + x) / (1 - x)).ln() / 2


def atan2(y: Decimal, x: Decimal) -> Decimal:
    """The angle of the point (x, y)."""
    with localcontext(_CONTEXT):
        if x > 0:
            return atan(y / x)
        if x == 0 and y == 0:
            return (pi() if x.is_signed() else x).copy_sign(y)
        if x == 0:
            return (pi() / 2).copy_sign(y)
        return atan(y / x) + pi().copy_sign(y)
