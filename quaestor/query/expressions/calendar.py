"""The proleptic Gregorian calendar on milliseconds since the epoch, for every date BSON can hold.

Python's datetime ends at the years 1 and 9999; these do not. Source of the day arithmetic: Howard Hinnant,
"chrono-Compatible Low-Level Date Algorithms".
"""

from __future__ import annotations

from typing import Final

DAY_MS: Final = 86_400_000


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01; day may lie outside its month."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return (year, month, day) of a day counted from 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def civil(at_ms: int) -> tuple[int, int, int]:
    """Return (year, month, day)."""
    return civil_from_days(at_ms // DAY_MS)


def clock(at_ms: int) -> tuple[int, int, int, int]:
    """Return (hour, minute, second, millisecond)."""
    rest, millisecond = divmod(at_ms % DAY_MS, 1000)
    rest, second = divmod(rest, 60)
    hour, minute = divmod(rest, 60)
    return hour, minute, second, millisecond


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if is_leap(year) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def day_of_year(at_ms: int) -> int:
    """Return the day of the year, 1 to 366."""
    days = at_ms // DAY_MS
    return days - days_from_civil(civil_from_days(days)[0], 1, 1) + 1


def day_of_week(at_ms: int) -> int:
    """Return the day of the week, 0 for Sunday to 6 for Saturday."""
    return (at_ms // DAY_MS + 4) % 7


def iso_day_of_week(at_ms: int) -> int:
    """Return the ISO day of the week, 1 for Monday to 7 for Sunday."""
    return day_of_week(at_ms) or 7


def week_of_year(at_ms: int) -> int:
    """Return the week of the year, 0 to 53; weeks begin on Sundays, days before the first Sunday are in week 0."""
    return (day_of_year(at_ms) - 1 + 7 - day_of_week(at_ms)) // 7


def iso_week(at_ms: int) -> tuple[int, int]:
    """Return (ISO 8601 year, week 1 to 53)."""
    thursday = at_ms // DAY_MS + 4 - iso_day_of_week(at_ms)
    year = civil_from_days(thursday)[0]
    return year, (thursday - days_from_civil(year, 1, 1)) // 7 + 1


def days_from_iso(year: int, week: int, day: int) -> int:
    """Return the days from 1970-01-01 of an ISO week date; week and day may lie outside their ranges."""
    january_4 = days_from_civil(year, 1, 4)
    monday = january_4 - (iso_day_of_week(january_4 * DAY_MS) - 1)
    return monday + (week - 1) * 7 + day - 1
