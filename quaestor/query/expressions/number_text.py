"""Numbers read from text, with the rules of `$convert`."""

from __future__ import annotations

import math
import re
from decimal import Decimal, localcontext
from typing import Final

from bson import Decimal128

from quaestor.query.expressions.errors import ConversionError
from quaestor.query.expressions.numeric import decimal128

_INTEGER: Final = re.compile(r"[+-]?[0-9]+\Z")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]+)?\Z")
_HEXADECIMAL: Final = re.compile(
    r"[+-]0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)(?:[pP][+-]?[0-9]+)?\Z"
)
_WORD: Final = re.compile(r"[+-]?(?:inf(?:inity)?|nan)\Z", re.IGNORECASE)
_NAN_PAYLOAD: Final = re.compile(r"[+-]?nan\([0-9a-z_]*\)\Z", re.IGNORECASE)
_SMALLEST_NORMAL: Final = 2.2250738585072014e-308


class NumberTextError(ConversionError):
    """A text that is not a number of the wanted type; `$convert` may replace it."""

    def __init__(self, text: str) -> None:
        super().__init__(f"Failed to parse number '{text}'")


def parse_integer(text: str, least: int, most: int) -> int:
    """Return a decimal integer between the bounds. Raises NumberTextError."""
    if not _INTEGER.match(text):
        raise NumberTextError(text)
    value = int(text) if len(text) < 40 else _long_integer(text)
    if not least <= value <= most:
        raise NumberTextError(text)
    return value


def _long_integer(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    return int(text[0] + (digits or "0") if text[0] in "+-" else digits or "0") if len(digits) < 40 else 10**40


def parse_double(text: str) -> float:
    """Return the double that C's strtod reads, without leading spaces. Raises NumberTextError."""
    if text.startswith(("0x", "0X")):
        raise NumberTextError(text)
    if _NAN_PAYLOAD.match(text):
        return math.nan
    if _WORD.match(text):
        return float(text)
    if _HEXADECIMAL.match(text):
        return float.fromhex(text)
    if not _FLOAT.match(text):
        raise NumberTextError(text)
    value = float(text)
    is_zero = not re.search("[1-9]", re.split("[eE]", text)[0])
    if math.isinf(value) or (abs(value) < _SMALLEST_NORMAL and not is_zero):
        raise NumberTextError(text)
    return value


def parse_decimal(text: str) -> Decimal128:
    """Return a Decimal128, rounded to 34 digits. Raises NumberTextError."""
    if _WORD.match(text):
        return decimal128(Decimal(text))
    if not _FLOAT.match(text):
        raise NumberTextError(text)
    with localcontext() as context:
        context.Emax, context.Emin, context.prec = 999_999_999, -999_999_999, 100_000
        value = Decimal(text)
    rounded = decimal128(value)
    if value and (not rounded.to_decimal().is_finite() or rounded.to_decimal().is_zero()):
        raise NumberTextError(text)
    return rounded
