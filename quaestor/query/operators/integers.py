"""Operands that must be whole numbers, whatever their BSON type."""

from __future__ import annotations

from typing import Any

from bson import Decimal128

from quaestor.errors import MalformedQueryError

_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal128) and not isinstance(value, bool)


def integer(value: Any, what: str) -> int:
    """Return the operand as a 64-bit integer: 5, 5.0 and Decimal128("5") alike. Raises MalformedQueryError with `what`."""
    if not is_number(value):
        raise MalformedQueryError(f"{what} needs a number, not {value!r}")
    exact = value.to_decimal() if isinstance(value, Decimal128) else value
    if exact != exact or exact in (float("inf"), float("-inf")) or exact != int(exact):
        raise MalformedQueryError(f"{what} needs a whole number, not {value!r}")
    whole = int(exact)
    if not _LONG_MIN <= whole <= _LONG_MAX:
        raise MalformedQueryError(f"{what} needs a 64-bit integer, not {value!r}")
    return whole


def truncated(value: Any) -> int | None:
    """Return a stored number cut off towards zero; None if it is not a number, not finite or does not fit 64 bits."""
    if value.__class__ is int:
        return value
    if not is_number(value):
        return None
    exact = value.to_decimal() if isinstance(value, Decimal128) else value
    if exact != exact or exact in (float("inf"), float("-inf")):
        return None
    whole = int(exact)
    return whole if _LONG_MIN <= whole <= _LONG_MAX else None
