"""Dates read from text without a format: the usual forms of ISO 8601.

mongod reads far more forms ("January 2, 2020", "@1577934245"). For those the result is uncertain, not wrong:
UnsupportedQueryError is raised, and the query counts as one that this engine does not match exactly.
"""

from __future__ import annotations

import re
from typing import Final

from quaestor.errors import UnsupportedQueryError
from quaestor.query.expressions.calendar import days_in_month
from quaestor.query.expressions.date_format import offset_minutes
from quaestor.query.expressions.errors import ConversionError
from quaestor.query.expressions.zones import UTC, Zone, local_ms

_TEXT: Final = re.compile(
    r"[ \t]*"
    r"(?:(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"|(?P<year2>[0-9]{4})(?P<month2>[0-9]{2})(?P<day2>[0-9]{2})"
    r"|(?P<year3>[0-9]{4})/(?P<month3>[0-9]{1,2})/(?P<day3>[0-9]{1,2}))"
    r"(?:(?:[Tt]|[ \t]++)(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<rest>[0-9]{0,9}))?)?)?"
    r"[ \t]*+(?P<zone>Z|z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)?+[ \t]*+\Z"
)


def parse_date(text: str, local: Zone | None = None) -> int:
    """Return the moment in ms.

    local: the zone of a text that names none; with a zone in the text it must be None.

    Raises:
        ConversionError: mongod would not read it either.
        UnsupportedQueryError: mongod might.
    """
    match = _TEXT.match(text)
    if match is None:
        if not any(character.isdecimal() for character in text):
            raise ConversionError(f"Error parsing date string '{text}'")
        raise UnsupportedQueryError("a date in a text that is not ISO 8601")
    parts = match.groupdict()
    year, month, day = (int(parts[name] or parts[f"{name}2"] or parts[f"{name}3"]) for name in ("year", "month", "day"))
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    if not 1 <= month <= 12 or not 1 <= day <= days_in_month(year, month):
        raise ConversionError(f"Error parsing date string '{text}': The parsed date was invalid")
    if hour > 23 or minute > 59 or second > 59:
        raise ConversionError(f"Error parsing date string '{text}': The parsed time was invalid")
    milliseconds = int((parts["rest"] or "").ljust(3, "0")[:3])
    at_ms = local_ms(year, month, day, ((hour * 60 + minute) * 60 + second) * 1000 + milliseconds)
    if parts["zone"] is None:
        return (local or UTC).moment(at_ms)
    if local is not None:
        raise ConversionError("you cannot pass in a date/time string with time zone together with a timezone argument")
    return at_ms - offset_minutes(parts["zone"]) * 60_000
