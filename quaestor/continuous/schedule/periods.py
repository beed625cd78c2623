"""Periods of queries: a duration like `10m` or `PT10M`, or a cron expression. Instants are microseconds since 1970."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import isodate
from cronsim import CronSim, CronSimError

from quaestor.errors import ConfigurationError
from quaestor.tables.instants import datetime_of, instant_of

SECOND: Final = 1_000_000
SHORTEST: Final = SECOND
LONGEST: Final = 53 * 7 * 86_400 * SECOND
_SHORT: Final = re.compile(r"(\d{1,9})\s*(s|m|h|d|w)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_MONDAY: Final = 4 * 86_400 * SECOND
"""A Monday at midnight, UTC: weeks begin there."""


@dataclass(frozen=True, slots=True)
class Every:
    """Period of one length.

    length: microseconds.

    Instants are multiples of the length, counted from a Monday. Queries with the same length are therefore due together.
    """

    length: int

    def next(self, now: int, factor: int = 1) -> int:
        """Return the first instant after `now`, in periods that are stretched by a factor."""
        length = self.length * factor
        return now + length - (now - _MONDAY) % length


@dataclass(frozen=True, slots=True)
class Cron:
    """Period of a cron expression with five or six fields. Load does not stretch it.

    zone: name of the time zone; its changes of the clock follow Debian's cron.
    """

    expression: str
    zone: str = "UTC"

    def next(self, now: int, factor: int = 1) -> int:
        """Return the first instant after `now`."""
        try:
            following: datetime = next(CronSim(self.expression, datetime_of(now).astimezone(ZoneInfo(self.zone))))
        except StopIteration as error:
            raise ConfigurationError(f"{self.expression!r} is due at no time: correct it") from error
        return instant_of(following)


Period = Every | Cron


def period(text: str) -> Period:
    """Return the period of a text: `30s`, `10m`, `2h`, `1d`, `2w`, `PT10M`, or `cron: 0 8 * * MON [Europe/Berlin]`.

    Raises ConfigurationError, also for less than a second and more than 53 weeks.
    """
    if text.startswith("cron:"):
        return _cron(text.removeprefix("cron:").strip())
    length = duration(text)
    if not SHORTEST <= length <= LONGEST:
        raise ConfigurationError(f"every={text!r}: a period is from 1 s to 53 w")
    return Every(length)


def duration(text: str) -> int:
    """Return the microseconds of a duration: `10m`, or ISO 8601 without months and years. Raises ConfigurationError."""
    if match := _SHORT.fullmatch(text.strip()):
        return int(match[1]) * _UNITS[match[2]] * SECOND
    try:
        parsed = isodate.parse_duration(text.strip())
        if not isinstance(parsed, timedelta):
            raise ValueError("months and years have no fixed length")
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigurationError(
            f"every={text!r} is no duration ({error}): write 30s, 10m, 2h, 1d, 2w, PT10M, or 'cron: 0 8 * * MON'"
        ) from error
    return parsed // timedelta(microseconds=1)


def _cron(text: str) -> Cron:
    expression, _, zone = text.partition("[")
    cron = Cron(expression.strip(), zone.strip(" ]") or "UTC")
    try:
        ZoneInfo(cron.zone)
        cron.next(0)
    except CronSimError as error:
        raise ConfigurationError(f"{text!r} is no cron expression ({error}): write 'cron: 0 8 * * MON'") from error
    except (ValueError, OSError, LookupError) as error:
        raise ConfigurationError(f"{text!r}: there is no time zone {cron.zone!r}") from error
    return cron
