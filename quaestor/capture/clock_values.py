"""Clock values: values of a query that may have been computed from the time of the request, and how long they stay valid.

| form in a query | read as |
|---|---|
| datetime, aware or naive, `DatetimeMS` | the instant; naive is UTC, as the driver takes it, or local time |
| number of 1e9..1e10, 1e12.., 1e15.., 1e18..1e19; the same as text | seconds, milli-, micro-, nanoseconds since the epoch |
| `Timestamp`, `ObjectId` that ends in eight zero bytes (`from_datetime`) | whole seconds since the epoch |
| `2026-11-22T14:30[:00[.123]][Z|+01:00]`, `2026-11-22T14`, also with a blank | the instant; without a zone, in any |
| `2026-11-22`, `2026/11/22`, `20261122` (number or text), `2026-11` | the day that it begins with, in any zone |
| `14:30`, `14:30:07[.123]` | the time of day, in any zone |
| number of 10,000 to 1e9 | minutes, 5, 10, 15, 30 minutes, hours or days since the epoch: this slot or one near it |

*Relative*: not of whole minutes, and a moment of the request is a round amount away. For a value with a fraction of a second, in
a request of up to 100 ms, whole seconds are round; otherwise multiples of 60 or of 100 s are. Values closer than the window count
too. Such a value is over at once. By chance this holds for a constant in 2 % of the requests of 20 ms. For a constant of whole
seconds it holds in 3 to 6 %. That answer is not stored, the next one is.

*Floored*: of whole minutes, at most 400 days away. Such a value stays valid until its unit ends. The unit is the largest of 1, 5,
10, 15, 30 minutes and an hour that divides it, or the day if it is midnight. A smaller unit counts if the request's time, floored
to that unit, is a round amount away. Up to 6 hours, or 8, 12, 18, and whole days are round. In every fifth second it is
over at once if it is closer than the window. By chance that many seconds before now may be a whole minute. Every constant
of this form counts as floored, which only shortens its life. The unit is the one in which the request *began*. If it ended while
the handler ran, the value is over at once. A day ends by its zone. That is an aware datetime's own, else UTC and the process's
own. A text may be of any zone, so its day ends where the next day begins first in the world.

*Constant*: all other values, and values in the request's own path or query, because they are keyed.

Not recognised by a value: amounts like 77 s or 7 s when only whole seconds remain, or 7 minutes when only hours remain; days that
begin at odd hours. `clock_coincidences` searches numbers of an hour, a weekday, a month. Pure: no clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum, auto
from typing import Final
from urllib.parse import unquote_plus

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
MOST_AWAY_MS: Final = 400 * DAY_MS
"""Floored values farther from now than this count as constants."""
_RELATIVE_AWAY_MS: Final = 800 * DAY_MS
_SHORT_MS: Final = 100
"""For requests up to this length any whole second counts as round."""
_SLACK_MS: Final = 1
_ROUND_MS: Final = (60_000, 100_000)
_ROUND_SECONDS_MS: Final = 5_000
"""Fractions of a minute that a handler may have subtracted are multiples of this."""
_UNITS: Final = (
    (MINUTE_MS, 5 * MINUTE_MS),
    (5 * MINUTE_MS, 15 * MINUTE_MS),
    (10 * MINUTE_MS, 30 * MINUTE_MS),
    (15 * MINUTE_MS, 30 * MINUTE_MS),
    (30 * MINUTE_MS, HOUR_MS),
    (HOUR_MS, HOUR_MS),
)
"""Units, finest first, with the amounts that are round beside them."""
_ROUND_HOURS: Final = frozenset({*range(7), 8, 12, 18})
"""Round numbers of hours, besides whole days."""
_ROUND_AWAY_MS: Final = 6 * HOUR_MS
"""Upper bound of other round amounts."""
WORLD_MS: Final = (
    0,
    *(hours * HOUR_MS for hours in range(-12, 15) if hours),
    *(quarters * 15 * MINUTE_MS for quarters in (-38, -14, -10, 14, 18, 22, 23, 26, 35, 38, 42, 51, 55)),
)
"""Offsets from UTC that are in use, with the odd ones from Marquesas (-9:30) to Chatham (13:45)."""
_SLOTS: Final = tuple(unit for unit, _ in _UNITS)
_LEAST_SLOT: Final = 10_000
_EPOCHS: Final = ((10**9, 1), (10**12, 10**3), (10**15, 10**6), (10**18, 10**9))
"""Sizes of numbers that count from the epoch, each with the units in a second."""
_ORDINAL: Final = 719_163
"""`date.toordinal()` of the epoch."""

_DATE: Final = re.compile(r"(\d{4})([-/]?)(\d\d)(?:\2(\d\d))?")
_BREAKS: Final = re.compile(r'[/?&=,;{}\[\]"]')
"""Characters around the values of a URL, and of JSON in one."""
_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:[.,](\d{1,3})\d*)?)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Form(Enum):
    """Kind of time that a value stands for."""

    INSTANT = auto()
    DATE = auto()
    """A day as text, of an unknown zone."""
    TIME_OF_DAY = auto()
    SLOT = auto()
    """A number that counts units since the epoch, or is no time at all."""


@dataclass(frozen=True, slots=True)
class ClockValue:
    """A value that may be computed from the clock.

    at_ms: the instant, since the epoch, as UTC where no zone is known; the time of day, since midnight; the number of a slot.
    offsets_ms: offsets from UTC that its zone may have, the likeliest first; empty: UTC or the process's own.
    zoned: the zone is the value's own, and at_ms the true instant.
    """

    form: Form
    at_ms: int
    offsets_ms: tuple[int, ...] = ()
    zoned: bool = False


def of_datetime(value: datetime) -> ClockValue:
    """Return the clock value of a datetime, in whole milliseconds."""
    offset = value.utcoffset()
    aware = value if offset is not None else value.replace(tzinfo=UTC)
    at_ms = (aware - _EPOCH) // _MILLISECOND
    if offset is None:
        return ClockValue(Form.INSTANT, at_ms)
    offset_ms = offset // _MILLISECOND
    if isinstance(value.tzinfo, timezone):
        return ClockValue(Form.INSTANT, at_ms, (offset_ms,), zoned=True)
    # Summer time may begin or end between then and now.
    return ClockValue(Form.INSTANT, at_ms, (offset_ms, offset_ms - HOUR_MS, offset_ms + HOUR_MS), zoned=True)


def of_number(value: float) -> ClockValue | None:
    """Return the clock value of a number; None if it has another size."""
    for least, in_a_second in _EPOCHS:
        if least < value < 10 * least:
            exact = value * 1000 // in_a_second if isinstance(value, int) else value * 1000 / in_a_second
            return ClockValue(Form.INSTANT, int(exact))
    if _LEAST_SLOT <= value < _EPOCHS[0][0] and value == int(value):
        return _of_date(str(int(value))) or ClockValue(Form.SLOT, int(value))
    return None


def of_text(value: str) -> ClockValue | None:
    """Return the clock value of a string; None if it has another form."""
    if not 5 <= len(value) <= 40 or not value[0].isascii() or not value[0].isdigit():
        return None
    match = _TIME_OF_DAY.fullmatch(value)
    if match is not None:
        hours, minutes, seconds, fraction = match.groups(default="0")
        at_ms = (int(hours) * 60 + int(minutes)) * MINUTE_MS + int(seconds) * 1000 + int(fraction.ljust(3, "0"))
        return ClockValue(Form.TIME_OF_DAY, at_ms)
    if len(value) >= 13 and value[4] == "-" and value[10] in "T ":
        try:
            instant = of_datetime(datetime.fromisoformat(value))
        except ValueError:
            return None
        return instant if instant.zoned else replace(instant, offsets_ms=WORLD_MS)
    dated = _of_date(value)
    if dated is not None or not value.isascii() or not value.isdigit() or len(value) > 19:
        return dated
    return of_number(int(value))


def _of_date(value: str) -> ClockValue | None:
    match = _DATE.fullmatch(value)
    if match is None or (not match[2] and match[4] is None) or not "1900" <= match[1] < "2200":
        return None
    try:
        day = date(int(match[1]), int(match[3]), int(match[4] or 1))
    except ValueError:
        return None
    return ClockValue(Form.DATE, (day.toordinal() - _ORDINAL) * DAY_MS)


def named(text: str) -> frozenset[int]:
    """Return the instants, times of day and numbers in a request's path and query, also within JSON. Equal values in a query are
    the client's."""
    pieces = {*_BREAKS.split(text), *_BREAKS.split(unquote_plus(text))}
    values = (of_text(piece.strip(" :")) for piece in pieces)
    return frozenset(value.at_ms for value in values if value is not None)


def valid_until_ms(
    value: ClockValue,
    *,
    started_ms: int,
    now_ms: int,
    window_ms: int,
    local_ms: tuple[int, ...] = (0,),
    asked: frozenset[int] = frozenset(),
) -> int | None:
    """Return the moment until which a value stays valid, if it follows the clock; None: for ever. Up to now_ms: it is over.

    started_ms, now_ms: the request's.
    window_ms: instants finer than a minute that are closer to the request count as now.
    local_ms: offsets of the process's zone from UTC, in winter and in summer.
    asked: see `named`.
    """
    if value.at_ms in asked or (value.zoned and value.at_ms + value.offsets_ms[0] in asked):
        return None
    if value.form is Form.SLOT:
        return _slot_end(value.at_ms, started_ms, local_ms)
    away_ms = _away(value, started_ms, now_ms, local_ms)
    if value.form is Form.DATE:
        return min(_next_day(started_ms, offset) for offset in WORLD_MS) if away_ms <= MOST_AWAY_MS else None
    if value.at_ms % MINUTE_MS:
        relative = away_ms <= window_ms or (away_ms <= _RELATIVE_AWAY_MS and _relative(value.at_ms, started_ms, now_ms))
        return started_ms if relative else None
    if away_ms > MOST_AWAY_MS:
        return None
    second_ms = started_ms // 1000 * 1000
    if second_ms % MINUTE_MS == 0 and _is_round(second_ms - value.at_ms, MINUTE_MS, value):
        return started_ms  # the value may as well be a fixed amount before this very second
    if away_ms <= window_ms and (value.at_ms - second_ms) % _ROUND_SECONDS_MS <= now_ms // 1000 * 1000 - second_ms:
        return started_ms  # or 30 seconds before it, which is a whole minute by chance
    return _unit_end(value, started_ms, local_ms)


def _away(value: ClockValue, started_ms: int, now_ms: int, local_ms: tuple[int, ...]) -> int:
    """Return the distance of the value from the request, in the nearest zone that it may belong to."""
    offsets = {0} if value.zoned else {0, *local_ms}
    if value.form is Form.TIME_OF_DAY:
        past = [(now_ms + offset - value.at_ms) % DAY_MS for offset in offsets]
        return min(min(distance_ms, DAY_MS - distance_ms) for distance_ms in past)
    return min(max(started_ms - at, at - now_ms, 0) for at in (value.at_ms - offset for offset in offsets))


def _relative(at_ms: int, started_ms: int, now_ms: int) -> bool:
    """Whether some moment of the request is a round amount away from the value."""
    whole_seconds = at_ms % 1000 == 0
    if whole_seconds:
        first, last = started_ms // 1000 * 1000, -(-now_ms // 1000) * 1000
    else:
        first, last = started_ms - _SLACK_MS, now_ms + _SLACK_MS
    amounts = _ROUND_MS if whole_seconds or now_ms - started_ms > _SHORT_MS else (1000,)
    return any((at_ms - first) % amount <= last - first for amount in amounts)


def _unit_end(value: ClockValue, started_ms: int, local_ms: tuple[int, ...]) -> int:
    """Return the end of the unit that a value of whole minutes was floored to."""
    at_ms, offsets = value.at_ms, value.offsets_ms or (0, *local_ms)
    day = value.form is Form.INSTANT and (at_ms + (offsets[0] if value.zoned else 0)) % DAY_MS == 0
    units = [(unit_ms, round_ms) for unit_ms, round_ms in _UNITS if at_ms % unit_ms == 0]
    for unit_ms, round_ms in units:
        floor_ms = started_ms // unit_ms * unit_ms
        finest_left = not day and unit_ms == units[-1][0]
        if finest_left or _is_round(floor_ms - at_ms, round_ms, value):
            return floor_ms + unit_ms
    return min(_next_day(started_ms, offset) for offset in offsets)


def _is_round(amount_ms: int, round_ms: int, value: ClockValue) -> bool:
    """Whether a handler may have subtracted this amount; in any zone, if the value's zone is unknown."""
    if value.form is Form.TIME_OF_DAY or (value.offsets_ms and not value.zoned):
        return amount_ms % round_ms == 0
    hours, rest_ms = divmod(abs(amount_ms), HOUR_MS)
    if rest_ms == 0:
        return hours % 24 in _ROUND_HOURS
    return abs(amount_ms) <= _ROUND_AWAY_MS and amount_ms % round_ms == 0


def _next_day(started_ms: int, offset_ms: int) -> int:
    return ((started_ms + offset_ms) // DAY_MS + 1) * DAY_MS - offset_ms


def _slot_end(number: int, started_ms: int, local_ms: tuple[int, ...]) -> int | None:
    """Return the end of a counted slot, if it is this one, a neighbour, or that of an hour, day or week ago."""
    for unit_ms in _SLOTS:
        slot = started_ms // unit_ms
        if abs((slot - number) * unit_ms) in (0, unit_ms, HOUR_MS, DAY_MS, 7 * DAY_MS):
            return (slot + 1) * unit_ms
    for offset in (0, *local_ms):
        if abs((started_ms + offset) // DAY_MS - number) in (0, 1, 7) or abs(
            (started_ms + offset) // DAY_MS + _ORDINAL - number
        ) in (0, 1, 7):
            return min(_next_day(started_ms, offset_ms) for offset_ms in (0, *local_ms))
    return None
