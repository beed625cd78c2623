"""Durations of statements: ISO 8601, or a number with a unit. Years and months have no fixed length and are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import isodate

UNITS_S: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
"""Seconds of each unit."""
LONGEST_US: Final = 100 * 366 * 86_400 * 1_000_000
_MICROSECOND: Final = timedelta(microseconds=1)


def iso_duration(text: str) -> int:
    """Return the microseconds of a duration in ISO 8601, like `PT10S`. Raises ValueError with the reason."""
    if len(text) > 64:
        raise ValueError("a duration has at most 64 characters")
    try:
        length = isodate.parse_duration(text)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{text!r} is no duration in ISO 8601; write PT10S, PT5M or P1D") from error
    if not isinstance(length, timedelta):
        raise ValueError(f"{text!r} has years or months, whose length varies; write days")
    return checked(length // _MICROSECOND)


def checked(length_us: int) -> int:
    """Return a length. Raises ValueError unless it is positive, and 100 years at most."""
    if not 0 < length_us <= LONGEST_US:
        raise ValueError("a duration is longer than zero, and at most 100 years")
    return length_us


def duration_text(length_us: int) -> str:
    """Return a duration as a statement writes it: `10 SECONDS`, or ISO 8601 for a part of a second."""
    for unit, seconds in sorted(UNITS_S.items(), key=lambda item: -item[1]):
        count, rest = divmod(length_us, seconds * 1_000_000)
        if not rest:
            return f"{count} {unit.upper()}{'' if count == 1 else 'S'}"
    return f'"PT{length_us // 1_000_000}.{length_us % 1_000_000:06d}S"'
