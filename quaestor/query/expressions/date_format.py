"""Date formats: printing (`$dateToString`) and reading (`$dateFromString` with a format)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from quaestor.query.expressions import calendar
from quaestor.query.expressions.errors import ConversionError, ExpressionError
from quaestor.query.expressions.zones import UTC, Zone, local_ms

ISO_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%LZ"
_PIECE: Final = re.compile(r"%(.?)|([^%]+)", re.DOTALL)


def _offset_text(offset_ms: int) -> str:
    hours, minutes = divmod(abs(offset_ms) // 60_000, 60)
    return f"{'-' if offset_ms < 0 else '+'}{hours:02}{minutes:02}"


def _minutes_text(offset_ms: int) -> str:
    return f"{'-' if offset_ms < 0 else ''}{abs(offset_ms) // 60_000}"


_PRINTERS: Final[Mapping[str, Callable[[int, int], str]]] = {
    "d": lambda local, offset: f"{calendar.civil(local)[2]:02}",
    "G": lambda local, offset: _year_text(calendar.iso_week(local)[0]),
    "H": lambda local, offset: f"{calendar.clock(local)[0]:02}",
    "j": lambda local, offset: f"{calendar.day_of_year(local):03}",
    "L": lambda local, offset: f"{calendar.clock(local)[3]:03}",
    "m": lambda local, offset: f"{calendar.civil(local)[1]:02}",
    "M": lambda local, offset: f"{calendar.clock(local)[1]:02}",
    "S": lambda local, offset: f"{calendar.clock(local)[2]:02}",
    "u": lambda local, offset: str(calendar.iso_day_of_week(local)),
    "U": lambda local, offset: f"{calendar.week_of_year(local):02}",
    "V": lambda local, offset: f"{calendar.iso_week(local)[1]:02}",
    "w": lambda local, offset: str(calendar.day_of_week(local) + 1),
    "Y": lambda local, offset: _year_text(calendar.civil(local)[0]),
    "z": lambda local, offset: _offset_text(offset),
    "Z": lambda local, offset: _minutes_text(offset),
    "%": lambda local, offset: "%",
}
"""Printers by specifier letter, from the local time and the offset, both in milliseconds."""


def _year_text(year: int) -> str:
    if not 0 <= year <= 9999:
        raise ExpressionError(
            f"Could not convert date to string: date component was outside the supported range of 0-9999: {year}"
        )
    return f"{year:04}"


def check_format(form: str, letters: str) -> None:
    """Refuse a format: raises ExpressionError for a specifier whose letter is not among letters."""
    for piece in _PIECE.finditer(form):
        letter = piece[1]
        if letter == "":
            raise ExpressionError("Unmatched '%' at end of format string")
        if letter is not None and letter not in letters:
            raise ExpressionError(f"Invalid format character '%{letter}' in format string")


PRINTED: Final = "".join(_PRINTERS)
"""Letters of the specifiers that `$dateToString` knows."""

READ: Final = "dGHLmMSuVYzZ%"
"""Letters of the specifiers that `$dateFromString` knows."""


def print_date(at_ms: int, form: str, local: Zone) -> str:
    """Return the moment in that zone and format. Raises ExpressionError for a printed year outside 0 to 9999."""
    offset = local.offset_ms(at_ms)
    return "".join(
        _PRINTERS[piece[1]](at_ms + offset, offset) if piece[1] is not None else piece[2]
        for piece in _PIECE.finditer(form)
    )


_READERS: Final[Mapping[str, str]] = {
    "d": r"(?P<d>[0-9]{1,2})",
    "G": r"(?P<G>[0-9]{1,4})",
    "H": r"(?P<H>[0-9]{1,2})",
    "L": r"(?P<L>[0-9]{1,3})",
    "m": r"(?P<m>[0-9]{1,2})",
    "M": r"(?P<M>[0-9]{1,2})",
    "S": r"(?P<S>[0-9]{1,2})",
    "u": r"(?P<u>[0-9])",
    "V": r"(?P<V>[0-9]{1,2})",
    "Y": r"(?P<Y>[0-9]{1,4})",
    "z": r"(?P<z>Z|GMT|UTC|[+-][0-9]{1,2}(?::?[0-9]{2})?)",
    "Z": r"(?P<Z>[+-][0-9]{1,4})",
    "%": "%",
}


def read_date(text: str, form: str, local: Zone | None) -> int:
    """Return the moment that a text in this format describes, in ms.

    local: the zone of a text that names none.

    Raises ConversionError if the text does not have the format, or is not a date.
    """
    try:
        pattern = read_pattern(form)
    except ConversionError as error:
        raise ConversionError(f"Error parsing date string '{text}': {error}") from None
    match = pattern.fullmatch(text)
    if match is None:
        raise ConversionError(f"Error parsing date string '{text}': it is not in the format '{form}'")
    return _composed(text, match.groupdict(), local)


def read_pattern(form: str) -> re.Pattern[str]:
    """Return the regular expression of a format. Raises ConversionError for a repeated specifier."""
    used: set[str] = set()
    pattern = ""
    for piece in _PIECE.finditer(form):
        letter = piece[1]
        if letter is None:
            pattern += re.escape(piece[2])
        elif letter in used and letter != "%":
            raise ConversionError(f"%{letter} is used twice")
        else:
            used.add(letter)
            pattern += _READERS[letter]
    return re.compile(pattern)


def _composed(text: str, parts: Mapping[str, str], local: Zone | None) -> int:
    numbers = {letter: int(value) for letter, value in parts.items() if letter not in "zZL"}
    hour, minute, second = (numbers.get(letter, 0) for letter in "HMS")
    if hour > 23 or minute > 59 or second > 59:
        raise ConversionError(f"Error parsing date string '{text}': The parsed time was invalid")
    days = _day(text, numbers)
    time_ms = ((hour * 60 + minute) * 60 + second) * 1000 + int(parts.get("L", "0").ljust(3, "0"))
    offset = parts.get("z", parts.get("Z"))
    if offset is None:
        return (local or UTC).moment(days * calendar.DAY_MS + time_ms)
    if local is not None:
        raise ConversionError("you cannot pass in a date/time string with GMT offset together with a timezone argument")
    shift = offset_minutes(offset) if "z" in parts else int(offset)
    return days * calendar.DAY_MS + time_ms - shift * 60_000


def _day(text: str, numbers: Mapping[str, int]) -> int:
    iso, natural = {"G", "V", "u"} & set(numbers), {"Y", "m", "d"} & set(numbers)
    if iso and natural:
        raise ConversionError(
            f"Error parsing date string '{text}': Mixing of ISO dates with natural dates is not allowed"
        )
    if {"G", "V"} <= iso:
        week, day = numbers["V"], numbers.get("u", 1)
        if not 1 <= week <= 53 or not 1 <= day <= 7:
            raise ConversionError(f"Error parsing date string '{text}': The parsed date was invalid")
        return calendar.days_from_iso(numbers["G"], week, day)
    if len(natural) < 3:
        raise ConversionError(f'an incomplete date/time string has been found, with elements missing: "{text}"')
    year, month, day = numbers["Y"], numbers["m"], numbers["d"]
    if not 1 <= month <= 12 or not 1 <= day <= calendar.days_in_month(year, month):
        raise ConversionError(f"Error parsing date string '{text}': The parsed date was invalid")
    return local_ms(year, month, day) // calendar.DAY_MS


def offset_minutes(text: str) -> int:
    """Return the minutes east of UTC of `Z`, `UTC`, `GMT`, `+5`, `+05`, `+0530`, `+05:30`."""
    if text[0] not in "+-":
        return 0
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    return (int(hours) * 60 + int(minutes)) * (-1 if text[0] == "-" else 1)
