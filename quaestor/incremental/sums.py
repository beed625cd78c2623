"""Sums of BSON numbers from which any summand can be removed again, without a remaining error.

All parts are exact: integers as such, doubles as multiples of the smallest one (2^-1074), decimals with all their digits.
The result is rounded once. mongod adds doubles with a compensation, but returns only the leading part. After cancellation
the last digits of its result depend on the order of its scan. This sum is then the exact one, and mongod's may differ in its
last digits. The same holds for the 34th digit of a Decimal128. Sums of integers never differ, and averages of them only
beyond 2^53. Manual: $sum, $avg.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Context, Decimal
from typing import Any, Final

from bson import Int64

from quaestor.query.expressions.kinds import NUMERIC, kind_of
from quaestor.query.expressions.numeric import DECIMAL, decimal128, fits_long, int_or_long, widest

_BITS: Final = 1074
_UNIT: Final = 1 << _BITS
_EXACT: Final = Context(prec=13_000, Emin=-999_999, Emax=999_999, traps=[])


class Total:
    """Exact sum over a multiset of values; other values than numbers do not count. Not thread-safe."""

    __slots__ = ("_decimals", "_exponents", "_kinds", "_odd", "_scaled", "_whole")

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._whole = 0
        self._scaled = 0
        self._decimals = Decimal(0)
        self._exponents: Counter[int] = Counter()
        self._odd: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Number of numbers in the sum."""
        return self._kinds.total()

    def add(self, value: Any, times: int = 1) -> None:
        """Add the value a number of times; a negative number removes it again. O(1)."""
        kind = kind_of(value)
        if kind not in NUMERIC:
            return
        _count(self._kinds, kind, times)
        if kind in ("int", "long"):
            self._whole += int(value) * times
        elif kind == "double":
            if not math.isfinite(value):
                _count(self._odd, str(value), times)
                return
            numerator, denominator = value.as_integer_ratio()
            self._scaled += (numerator << (_BITS + 1 - denominator.bit_length())) * times
        else:
            exact = value.to_decimal()
            if not exact.is_finite():
                _count(self._odd, "nan" if exact.is_nan() else str(float(exact)), times)
                return
            _count(self._exponents, int(exact.as_tuple().exponent), times)
            self._decimals = _EXACT.add(self._decimals, _EXACT.multiply(exact, Decimal(times)))

    def sum(self) -> Any:
        """Return the sum like `$sum`: int, long, double or Decimal128 by the widest kind among the numbers; 0 without numbers."""
        kind = widest([*self._kinds])
        if kind == "decimal":
            return decimal128(self._decimal())
        if kind == "double" or not fits_long(self._whole):
            return self._double()
        return Int64(self._whole) if kind == "long" else int_or_long(self._whole)

    def average(self) -> Any:
        """Return the average like `$avg`: a double, or a Decimal128 if there is one among the numbers; None without numbers."""
        if not self.count:
            return None
        if self._kinds["decimal"]:
            return decimal128(DECIMAL.divide(self._decimal(), Decimal(self.count)))
        return self._double() / self.count

    def _not_finite(self) -> float | None:
        """Return NaN or an infinity if the sum is one, else None."""
        odd = self._odd
        if odd["nan"] or (odd["inf"] and odd["-inf"]):
            return math.nan
        return math.inf if odd["inf"] else -math.inf if odd["-inf"] else None

    def _double(self) -> float:
        odd = self._not_finite()
        return _nearest((self._whole << _BITS) + self._scaled) if odd is None else odd

    def _decimal(self) -> Decimal:
        odd = self._not_finite()
        if odd is not None:
            return Decimal(odd)
        exact = (self._whole << _BITS) + self._scaled
        total = _nearest(exact)
        if not math.isfinite(total):
            return Decimal(total)
        carry = _nearest(exact - _scaled(total))
        others = DECIMAL.add(DECIMAL.plus(Decimal(total)), DECIMAL.plus(Decimal(carry)))
        least = Decimal((0, (1,), min((0, *self._exponents))))
        return DECIMAL.add(DECIMAL.plus(_EXACT.quantize(self._decimals, least)), others)


def _count(counter: Counter[Any], what: Any, times: int) -> None:
    counter[what] += times
    if not counter[what]:
        del counter[what]


def _scaled(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_BITS + 1 - denominator.bit_length())


def _nearest(scaled: int) -> float:
    """Return the double nearest to scaled / 2^1074."""
    try:
        return scaled / _UNIT
    except OverflowError:
        return math.inf if scaled > 0 else -math.inf
