"""Time zones: Olson names from the system's or the `tzdata` package's database, and UTC offsets like `+05:30`.

The rules are those of this machine's database; mongod brings its own, so a zone whose rules changed lately may differ.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from quaestor.invalidation.query.expressions.calendar import DAY_MS, civil, clock, days_from_civil
from quaestor.invalidation.query.expressions.errors import ExpressionError
from quaestor.invalidation.query.expressions.kinds import is_nullish, is_string, kind_of

_OFFSET: Final = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?\Z")


def _no_offset(at_ms: int) -> int:
    return 0


def _one_offset(local_ms: int) -> tuple[int, int]:
    return 0, 0


@dataclass(frozen=True, slots=True)
class Zone:
    """offset_ms: what is added to UTC at a moment (UTC ms) to get local time.

    candidates_ms: the offsets that a local time (ms) may have: twice the same, or before and after a change of clocks.
    """

    name: str
    offset_ms: Callable[[int], int] = field(compare=False)
    candidates_ms: Callable[[int], tuple[int, int]] = field(compare=False)

    def local(self, at_ms: int) -> int:
        """Local time of a moment, counted as though it were UTC."""
        return at_ms + self.offset_ms(at_ms)

    def moment(self, local_ms: int, *, prefer_ms: int | None = None) -> int:
        """The moment of a local time. A time that does not exist moves on by the gap; of a time that exists twice it is
        the later one, or the one with the offset prefer_ms.
        """
        before, after = self.candidates_ms(local_ms)
        if before > after and prefer_ms == before:
            return local_ms - before
        return local_ms - min(before, after)


UTC: Final = Zone("UTC", _no_offset, _one_offset)


def zone(name: Any) -> Zone:
    """The zone that a `timezone` argument names. Raises ExpressionError if there is none."""
    if not is_string(name):
        raise ExpressionError(f"timezone must evaluate to a string, found {kind_of(name)}")
    return _zone(name)


def zone_of(value: Any) -> Zone | None:
    """Like `zone`; None for null and missing."""
    return None if is_nullish(value) else zone(value)


@lru_cache(maxsize=256)
def _zone(name: str) -> Zone:
    if found := _OFFSET.match(name):
        sign, hours, minutes = found.groups()
        shift = (int(hours) * 60 + int(minutes or 0)) * 60_000 * (-1 if sign == "-" else 1)
        return Zone(name, lambda at_ms: shift, lambda local_ms: (shift, shift))
    if name == "UTC":
        return UTC
    if name not in _names():
        raise ExpressionError(f'unrecognized time zone identifier: "{name}"')
    info = zoneinfo.ZoneInfo(name)
    return Zone(name, lambda at_ms: _utc_offset(info, at_ms), lambda local_ms: _local_offsets(info, local_ms))


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones()) - {"localtime", "posixrules"}


def _utc_offset(info: zoneinfo.ZoneInfo, at_ms: int) -> int:
    return _offset(_near(at_ms).replace(tzinfo=datetime.UTC).astimezone(info))


def _local_offsets(info: zoneinfo.ZoneInfo, local_ms: int) -> tuple[int, int]:
    local = _near(local_ms)
    return _offset(local.replace(tzinfo=info, fold=0)), _offset(local.replace(tzinfo=info, fold=1))


def _offset(moment: datetime.datetime) -> int:
    return (moment.utcoffset() or datetime.timedelta()) // datetime.timedelta(milliseconds=1)


def _near(at_ms: int) -> datetime.datetime:
    """The same time in a year that datetime knows: itself, or one with the same calendar at either end."""
    year, month, day = civil(at_ms)
    if year < 2:
        return datetime.datetime(2, 1, 1)
    if year > 9990:
        year = 9600 + year % 400 - (400 if year % 400 > 390 else 0)
    hour, minute, second, millisecond = clock(at_ms)
    return datetime.datetime(year, month, day, hour, minute, second, millisecond * 1000)


def local_ms(year: int, month: int, day: int, time_ms: int = 0) -> int:
    """A local date as milliseconds; month may lie outside 1 to 12, day outside its month."""
    extra, month_index = divmod(month - 1, 12)
    return (days_from_civil(year + extra, month_index + 1, 1) + day - 1) * DAY_MS + time_ms
