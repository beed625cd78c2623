"""The four numeric types: the type of a result, and conversions between types, as in mongod 6.0.

An int (32 bits) widens to a long (64 bits), a long to a double, a double to a Decimal128. Python's int stands for the first
two: its size, or being an Int64, decides which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from bson import Decimal128, Int64

from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.kinds import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, NUMERIC, kind_of

DECIMAL: Final = Context(prec=34, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, clamp=1, traps=[])
"""Decimal128's arithmetic."""

_FIFTEEN_DIGITS: Final = Context(prec=15, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, clamp=1, traps=[])
_WIDTH: Final = {"int": 0, "long": 1, "double": 2, "decimal": 3}


def widest(kinds: Sequence[str]) -> str:
    """Return the type in which arithmetic on these numeric types is done."""
    return max(kinds, key=_WIDTH.__getitem__, default="int")


def fits_int(value: float) -> bool:
    return INT32_MIN <= value <= INT32_MAX


def fits_long(value: int) -> bool:
    return INT64_MIN <= value <= INT64_MAX


def int_or_long(value: int) -> int:
    """Return value in the narrowest integer type that holds it; it must fit a long."""
    return int(value) if fits_int(value) else Int64(value)


def integer(value: int, kind: str) -> Any:
    """Return an int or long of at least this type; a double where it does not fit a long."""
    if not fits_long(value):
        return float(value)
    return Int64(value) if kind == "long" else int_or_long(value)


def to_decimal(value: Any) -> Decimal:
    """Return the number in Decimal128 arithmetic: a double is rounded to 15 significant digits, padded with zeros."""
    if isinstance(value, Decimal128):
        return value.to_decimal()
    if isinstance(value, float):
        return decimal_from_double(value)
    return Decimal(value)


def decimal_from_double(value: float) -> Decimal:
    """Return the double rounded to 15 significant digits, all of them kept: 2.0 becomes 2.00000000000000."""
    if math.isnan(value):
        return Decimal("NaN")
    exact = Decimal(value)
    if not exact.is_finite() or exact.is_zero():
        return exact
    rounded = _FIFTEEN_DIGITS.plus(exact)
    return rounded.quantize(Decimal((0, (1,), rounded.adjusted() - 14)), context=DECIMAL)


def to_double(value: Any) -> float:
    """Return any number as the nearest double."""
    if isinstance(value, Decimal128):
        return float(value.to_decimal())
    return float(value)


def decimal128(value: Decimal) -> Decimal128:
    """Return the Decimal128 nearest to value; NaN without sign and payload."""
    if value.is_nan():
        return Decimal128("NaN")
    return Decimal128(DECIMAL.plus(value) if value else _zero(value))


def _zero(value: Decimal) -> Decimal:
    sign, _, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return value
    return Decimal((sign, (0,), min(max(exponent, -6176), 6111)))


def to_long(value: Any) -> int:
    """Return an integer from a number: a double's fraction is cut off, a Decimal128 is rounded to even.

    Raises ExpressionError for a double that does not fit a long; such a Decimal128 becomes the smallest long.
    """
    if isinstance(value, Decimal128):
        exact = value.to_decimal()
        whole = int(exact.to_integral_value(ROUND_HALF_EVEN)) if exact.is_finite() else INT64_MIN
        return whole if fits_long(whole) else INT64_MIN
    if isinstance(value, float) and not -(2.0**63) <= value < 2.0**63:
        raise ExpressionError(f"Can't coerce out of range value {value} to long")
    return int(value)


_UNBOUNDED: Final = DECIMAL.copy()
_UNBOUNDED.prec, _UNBOUNDED.Emax, _UNBOUNDED.Emin, _UNBOUNDED.clamp = 20_000, 999_999, -999_999, 0


def decimal_remainder(left: Decimal, right: Decimal) -> Decimal:
    """Return the remainder with the sign of the dividend, exact however far apart the exponents are."""
    if not left.is_finite() or not right.is_finite():
        return DECIMAL.remainder(left, right)
    exponent = min(int(left.as_tuple().exponent), int(right.as_tuple().exponent))
    divisor = abs(int(right.scaleb(-exponent, _UNBOUNDED)))
    rest = abs(int(left.scaleb(-exponent, _UNBOUNDED))) % divisor
    return Decimal((left.as_tuple().sign, tuple(int(digit) for digit in str(rest)), exponent))


def whole_number(value: Any) -> int | None:
    """Return the value of a number without fraction that fits a long, whatever its type; None for everything else."""
    kind = kind_of(value)
    if kind not in NUMERIC:
        return None
    if kind in ("int", "long"):
        return int(value)
    if kind == "double":
        return int(value) if value.is_integer() and -(2.0**63) <= value < 2.0**63 else None
    exact = to_decimal(value)
    if not exact.is_finite() or exact != exact.to_integral_value() or not fits_long(int(exact)):
        return None
    return int(exact)


def as_int32(value: Any) -> int | None:
    """Return the value of a number without fraction that fits an int, whatever its type; None for everything else."""
    whole = whole_number(value)
    return whole if whole is not None and fits_int(whole) else None


class DoubleDouble:
    """A sum of doubles that carries the rounding error along (Knuth's TwoSum), like mongod's `$sum`.

    A number and the carried error are added by the quick form, even if the error is the larger of the two. mongod loses the
    same digits.
    """

    __slots__ = ("_carry", "_plain", "_total")

    def __init__(self, numbers: Iterable[float]) -> None:
        """Add ints, longs and doubles. A long is added as two halves, lower first, without loss."""
        self._total = self._carry = self._plain = 0.0
        for number in numbers:
            if isinstance(number, float):
                self._add(number)
            elif kind_of(number) == "int":
                self._add(float(number))
            else:
                low = abs(int(number)) % 2**32 * (1 if number > 0 else -1)
                self._add(float(low))
                self._add(float(int(number) - low))

    def _add(self, value: float) -> None:
        self._plain += value
        value, self._carry = _quick_two_sum(value, self._carry)
        self._total, rest = _two_sum(self._total, value)
        self._carry += rest

    def double(self) -> float:
        return self._plain if math.isnan(self._total) else self._total

    def decimal(self) -> Decimal:
        """Return the sum with 34 digits."""
        if not math.isfinite(self._total):
            return DECIMAL.plus(Decimal(self._plain))
        return DECIMAL.add(DECIMAL.plus(Decimal(self._total)), DECIMAL.plus(Decimal(self._carry)))

    def whole(self) -> int | None:
        """Return the sum as an integer, rounded like mongod; None if it is not finite."""
        if not math.isfinite(self._total):
            return None
        nearest = _nearest(self._total)
        return nearest + _nearest((self._total - float(nearest)) + self._carry)


def _nearest(value: float) -> int:
    """Return the nearest integer; of two, the one farther from zero."""
    magnitude = abs(value)
    whole = int(magnitude)
    whole += magnitude - whole >= 0.5
    return -whole if value < 0 else whole


def _two_sum(a: float, b: float) -> tuple[float, float]:
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _quick_two_sum(a: float, b: float) -> tuple[float, float]:
    """Return the sum and its error, which is exact where b is not the larger one (Dekker)."""
    total = a + b
    return total, b - (total - a)
