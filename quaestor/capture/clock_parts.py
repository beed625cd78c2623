"""Parts of the present time as text: year to second, weekday, week, names of days and months, in the zones of the world.

A table maps each text to its parts and to the end of each unit. A part is written as a number with and without leading zeros,
or as a name. Pure: the moment is an argument; the process's zone and locale are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from quaestor.capture.clock_values import WORLD_MS

SECOND: Final = "second"
_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400
_MOST_SECONDS: Final = 30
"""Longer runs of handlers are judged by so many moments of the run, and without their seconds."""
_TELLING: Final = frozenset(
    {
        "minute", "minute of day", "hour", "hour of twelve", "half day", "day", "day of year", "weekday", "month",
        "month name", "year",
    }
)  # fmt: skip
"""Parts that are searched in other zones."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = _EPOCH.toordinal()
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip


class Part(NamedTuple):
    """One part of a moment.

    name: of the unit.
    width: digits that it has with leading zeros; 0 for a name.
    end_ms: the end of the unit, since the epoch.
    zone_s: the offset from UTC.
    """

    name: str
    width: int
    end_ms: int
    zone_s: int


Table = Mapping[str, tuple[Part, ...]]
"""Parts by their text."""


def near_zones() -> tuple[int, ...]:
    """Offsets in seconds of UTC and of the process's own zone, in winter and in summer."""
    return tuple({0, -time.timezone, -time.altzone})


def near_table(started_ms: int, now_ms: int) -> Table:
    """Return the parts of every second of a request, in UTC and in the process's zone."""
    return _near(started_ms // 1000, now_ms // 1000, near_zones())


def world_table(started_ms: int, now_ms: int) -> Table:
    """Return the parts from the minute on of the request's first and last minute, in every other zone in use."""
    return _world(started_ms // 60_000, now_ms // 60_000, near_zones())


@lru_cache(maxsize=64)
def _near(first_s: int, last_s: int, zones: tuple[int, ...]) -> Table:
    step = max(1, (last_s - first_s) // _MOST_SECONDS)
    seconds = sorted({*range(first_s, last_s + 1, step), last_s})
    parts = (item for second in seconds for zone in zones for item in _parts(second, zone))
    return _table(item for item in parts if step == 1 or item[1].name != SECOND)


@lru_cache(maxsize=16)
def _world(first_minute: int, last_minute: int, near: tuple[int, ...]) -> Table:
    zones = [offset // 1000 for offset in WORLD_MS if offset // 1000 not in near]
    minutes = {first_minute * _MINUTE_S, last_minute * _MINUTE_S}
    parts = (item for second in minutes for zone in zones for item in _parts(second, zone))
    return _table(item for item in parts if item[1].name in _TELLING)


def _table(parts: Iterable[tuple[str, Part]]) -> Table:
    table: dict[str, dict[Part, None]] = {}
    for text, part in parts:
        table.setdefault(text, {})[part] = None
        if part.width:
            table.setdefault(text.zfill(part.width), {})[part] = None
    return {text: tuple(parts) for text, parts in table.items()}


def _parts(second: int, zone_s: int) -> Iterator[tuple[str, Part]]:
    """Iterate over all parts of one second, each with its text."""
    at_s = second + zone_s
    at = _EPOCH + timedelta(seconds=at_s)
    for name, value, width, unit_s in (
        (SECOND, at.second, 2, 1),
        ("second of day", at_s % _DAY_S, 5, 1),
        ("minute", at.minute, 2, _MINUTE_S),
        ("minute of day", at_s % _DAY_S // _MINUTE_S, 4, _MINUTE_S),
        ("hour", at.hour, 2, _HOUR_S),
        ("hour of twelve", (at.hour - 1) % 12 + 1, 2, _HOUR_S),
    ):
        yield str(value), Part(name, width, ((at_s // unit_s + 1) * unit_s - zone_s) * 1000, zone_s)
    noon_s = (at_s // (_DAY_S // 2) + 1) * (_DAY_S // 2) - zone_s
    for word in {"am" if at.hour < 12 else "pm", at.strftime("%p").casefold()} - {""}:
        yield word, Part("half day", 0, noon_s * 1000, zone_s)
    for text, name, width, end_s in _of_day(at.date()):
        yield text, Part(name, width, (end_s - zone_s) * 1000, zone_s)


@lru_cache(maxsize=128)
def _of_day(day: date) -> tuple[tuple[str, str, int, int], ...]:
    """Return the parts from the day on: text, name, width, end in seconds of the zone."""
    weekday, year, month = day.weekday(), day.year, day.month
    quarter = (month - 1) // 3
    day_end = _start_s(day) + _DAY_S
    month_end = _start_s(date(year + month // 12, month % 12 + 1, 1))
    year_end = _start_s(date(year + 1, 1, 1))
    quarter_end = _start_s(date(year + (quarter == 3), (quarter + 1) % 4 * 3 + 1, 1))
    week_end = min(day_end + min(6 - weekday, (5 - weekday) % 7) * _DAY_S, year_end)
    iso_year, iso_week, _ = day.isocalendar()
    numbers = (
        ("day", day.day, 2, day_end),
        ("day of year", day.timetuple().tm_yday, 3, day_end),
        ("weekday from 0", weekday, 1, day_end),
        ("weekday from 1", weekday + 1, 1, day_end),
        ("weekday from Sunday, 0", (weekday + 1) % 7, 1, day_end),
        ("weekday from Sunday, 1", (weekday + 1) % 7 + 1, 1, day_end),
        ("week", iso_week, 2, week_end),
        ("week from Sunday", int(day.strftime("%U")), 2, week_end),
        ("week from Monday", int(day.strftime("%W")), 2, week_end),
        ("month", month, 2, month_end),
        ("month from 0", month - 1, 2, month_end),
        ("quarter", quarter + 1, 1, quarter_end),
        ("year", year, 4, year_end),
        ("year of century", year % 100, 2, year_end),
        ("ISO year", iso_year, 4, week_end),
    )
    weekdays = {_DAYS[weekday], _DAYS[weekday][:3], _DAYS[weekday][:2], *_words(day, "%a %A")}
    months = {_MONTHS[month - 1], _MONTHS[month - 1][:3], "sept" * (month == 9), *_words(day, "%b %B")} - {""}
    return (
        *((str(value), name, width, end_s) for name, value, width, end_s in numbers),
        *((word, "weekday", 0, day_end) for word in weekdays),
        *((word, "month name", 0, month_end) for word in months),
    )


def _words(day: date, layout: str) -> list[str]:
    """Return names in the process's locale."""
    return day.strftime(layout).casefold().replace(".", "").split()


def _start_s(day: date) -> int:
    return (day.toordinal() - _EPOCH_ORDINAL) * _DAY_S
