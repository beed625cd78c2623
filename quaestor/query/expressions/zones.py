"""Time zones: Olson names from the system's or the `tzdata` package's database, and UTC offsets like `+05:30`.

The rules are from this machine's database; mongod has its own, so a zone whose rules changed lately may differ.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from quaestor.query.expressions.calendar import DAY_MS, civil, clock, days_from_civil
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.kinds import is_nullish, is_string, kind_of

_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_OFFSET: Final = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?\Z")


Clock = tuple[int, bool]
"""The offset that is added to UTC (ms), and whether that is daylight saving time."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone.

    clock: returns the setting of clocks at a moment (UTC ms)."""

    name: str
    clock: Callable[[int], Clock] = field(compare=False)

    def offset_ms(self, at_ms: int) -> int:
        """Return the milliseconds that are added to UTC at that moment to give local time."""
        return self.clock(at_ms)[0]

    def local(self, at_ms: int) -> int:
        """Return the local time of a moment, counted as though it were UTC."""
        return at_ms + self.clock(at_ms)[0]

    def moment(self, local_ms: int, *, saving: bool | None = None) -> int:
        """Return the moment of a local time.

        A local time that clocks skip moves on by the skipped span. A local time that occurs twice is decided by saving: whether
        it is daylight saving time. None: as clocks were in this zone at the epoch, where mongod's library timelib starts.
        """
        if saving is None:
            saving = self.clock(0)[1]
        current, current_saves = self.clock(local_ms)
        actual = after = self.offset_ms(local_ms - current)
        if current == after:
            actual = self._clarified(local_ms, current, current_saves, saving)
        if current == actual or (actual > current and self.offset_ms(local_ms - actual) != actual):
            return local_ms - current
        return local_ms - actual

    def _clarified(self, local_ms: int, current: int, current_saves: bool, saving: bool) -> int:
        """Look two hours back or ahead for the change of clocks that decides the offset."""
        if current >= 0 and saving and not current_saves:
            earlier = self.offset_ms(local_ms - current - _TWO_HOURS_MS)
            if earlier > current and self.offset_ms(local_ms - earlier) != current:
                return earlier
        elif current <= 0 and current_saves and not saving:
            later = self.offset_ms(local_ms - current + _TWO_HOURS_MS)
            if later != current and self.offset_ms(local_ms - later) == later:
                return later
        return current


_TWO_HOURS_MS: Final = 7_200_000
UTC: Final = Zone("UTC", lambda at_ms: (0, False))


def zone(name: Any) -> Zone:
    """Return the zone that a `timezone` argument names. Raises ExpressionError if there is none."""
    if not is_string(name):
        raise ExpressionError(f"timezone must evaluate to a string, found {kind_of(name)}")
    return _zone(name)


def zone_of(value: Any) -> Zone | None:
    """Like `zone`; None for null and missing."""
    return None if is_nullish(value) else zone(value)


@lru_cache(maxsize=256)
def _zone(name: str) -> Zone:
    if match := _OFFSET.match(name):
        sign, hours, minutes = match.groups()
        shift = (int(hours) * 60 + int(minutes or 0)) * 60_000 * (-1 if sign == "-" else 1)
        return Zone(name, lambda at_ms: (shift, False))
    if name == "UTC":
        return UTC
    if name not in _names():
        raise ExpressionError(f'unrecognized time zone identifier: "{name}"')
    info = zoneinfo.ZoneInfo(name)
    return Zone(name, lambda at_ms: _clock(info, at_ms))


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones()) - {"localtime", "posixrules"}


def _clock(info: zoneinfo.ZoneInfo, at_ms: int) -> Clock:
    there = _near(at_ms).replace(tzinfo=datetime.UTC).astimezone(info)
    offset = there.utcoffset() or datetime.timedelta()
    return offset // _MILLISECOND, bool(there.dst())


def _near(at_ms: int) -> datetime.datetime:
    """Return the same time in a year that datetime supports: itself, or one with the same calendar at either end."""
    year, month, day = civil(at_ms)
    if year < 2:
        return datetime.datetime(2, 1, 1)
    if year > 9990:
        year = 9600 + year % 400 - (400 if year % 400 > 390 else 0)
    hour, minute, second, millisecond = clock(at_ms)
    return datetime.datetime(year, month, day, hour, minute, second, millisecond * 1000)


def local_ms(year: int, month: int, day: int, time_ms: int = 0) -> int:
    """Return a local date as milliseconds; month may lie outside 1 to 12, day outside its month."""
    extra, month_index = divmod(month - 1, 12)
    return (days_from_civil(year + extra, month_index + 1, 1) + day - 1) * DAY_MS + time_ms
