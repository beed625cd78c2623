"""Parts of the present time in constants: no answer lives beyond the instant at which its constant changes; literals live on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.capture.constants import constants_of
from quaestor.capture.seen_constants import AskedText, SeenConstants

pytestmark = pytest.mark.clock_parts

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 22, 14, 53, 27, 345_000, tzinfo=UTC)
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
Encoding = Callable[[datetime], Any]


def ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def at(moment_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=moment_ms)


def until_ms(seen: SeenConstants, value: Any, now_ms: int, *, took_ms: int = 0, requested: str = "") -> int | None:
    """The moment until which an answer made with this value lives; None: no constant ends it."""
    constants = constants_of("shop.items", filter={"at": value})
    ends = seen.ends_ms("route", constants, started_ms=now_ms, now_ms=now_ms + took_ms, asked=AskedText(requested))
    return min(ends, default=None)


def first_change_ms(encoding: Encoding, now_ms: int, end_ms: int) -> int | None:
    """A moment before the end at which the encoding is another, among those at which units begin."""
    value = encoding(at(now_ms))
    moments = {end_ms - 1, *(now_ms + (end_ms - 1 - now_ms) * step // 32 for step in range(33))}
    for unit_ms in (1, 1_000, 60_000, 900_000, 3_600_000):
        moments |= {now_ms // unit_ms * unit_ms + unit_ms * count for count in range(1, 40)}
    return next(
        (moment for moment in sorted(moments) if now_ms < moment < end_ms and encoding(at(moment)) != value), None
    )


def in_base(number: int, base: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, base)
        digits = DIGITS[digit] + digits
    return digits


WAYS: dict[str, Encoding] = {
    "minutes inside a longer string": lambda now: f"board-{now:%M}-departures",
    "hours and minutes after a name": lambda now: f"slot{now:%H%M}",
    "minutes beside other digits": lambda now: f"gate7{now:%M}",
    "compact digits": lambda now: f"{now:%Y%m%d%H%M%S}",
    "compact digits of a minute": lambda now: int(f"{now:%Y%m%d%H%M}"),
    "compact digits with a century left out": lambda now: f"{now:%y%m%d%H}",
    "compact digits with ms": lambda now: f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03}",
    "digits without zeros": lambda now: f"{now.hour}{now.minute}",
    "RFC 5322": format_datetime,
    "RFC 9110": lambda now: format_datetime(now, usegmt=True),
    "RFC 850": lambda now: f"{now:%A, %d-%b-%y %H:%M:%S GMT}",
    "ctime": lambda now: now.ctime(),
    "locale date": lambda now: f"{now:%x}",
    "locale time": lambda now: f"{now:%c}",
    "German date": lambda now: f"{now.day}.{now.month}.{now.year} {now.hour}:{now.minute:02}",
    "American time": lambda now: f"{now:%m/%d/%Y %I:%M %p}",
    "time with tenths": lambda now: f"{now:%H:%M:%S}.{now.microsecond // 100_000}",
    "hex seconds": lambda now: f"{int(now.timestamp()):x}",
    "hex milliseconds": lambda now: f"{ms(now):#x}",
    "base 36": lambda now: in_base(int(now.timestamp()), 36),
    "hex minute": lambda now: f"{now.minute:x}",
    "list of parts": lambda now: [now.year, now.month, now.day, now.hour],
    "subdocument of parts": lambda now: {"h": now.hour, "m": now.minute},
    "hour": lambda now: now.hour,
    "minute": lambda now: now.minute,
    "second": lambda now: now.second,
    "weekday": lambda now: now.weekday(),
    "name of the weekday": lambda now: f"{now:%A}",
    "month": lambda now: f"{now:%b}".upper(),
    "day of the year": lambda now: f"{now:%j}",
    "week": lambda now: f"{now:%G-W%V}",
    "half of the day": lambda now: f"{now:%p}",
    "quotient by 10": lambda now: int(now.timestamp()) // 10,
    "quotient by 20": lambda now: int(now.timestamp()) // 20,
    "quotient by 30": lambda now: str(int(now.timestamp()) // 30),
    "quotient by 40": lambda now: int(now.timestamp()) // 40,
    "quotient by 120": lambda now: int(now.timestamp()) // 120,
    "quotient of six hours": lambda now: int(now.timestamp()) // 21_600,
    "field name": lambda now: {f"hours.{now.hour}": 1},
    "time of day in 2000": lambda now: now.replace(year=2000, month=1, day=1, second=0, microsecond=0, tzinfo=None),
    "Tokyo's clock": lambda now: f"at {now.astimezone(timezone(timedelta(hours=9))):%H.%M}",
    "Kathmandu's day": lambda now: f"{now.astimezone(timezone(timedelta(hours=5, minutes=45))):%d %b %Y}",
}


@pytest.mark.parametrize("name", WAYS)
def test_an_answer_does_not_outlive_the_time_in_its_query(name: str) -> None:
    for step_ms in (0, 1_337, 61_000, 3_600_000, 86_400_000):
        now_ms = ms(NOW) + step_ms
        end_ms = until_ms(SeenConstants(), WAYS[name](at(now_ms)), now_ms)
        assert end_ms is not None
        assert first_change_ms(WAYS[name], now_ms, end_ms) is None


@given(
    st.sampled_from(sorted(WAYS)), st.integers(0, 400 * 86_400_000), st.lists(st.integers(1, 90_000_000), max_size=6)
)
def test_no_answer_outlives_a_constant_that_was_seen_often_before(name: str, start_ms: int, steps: list[int]) -> None:
    """A constant may return, as the hour of the next day does; its end is found all the same."""
    seen, now_ms = SeenConstants(), ms(NOW) + start_ms
    for step_ms in (*steps, 86_400_000, 86_400_000):
        end_ms = until_ms(seen, WAYS[name](at(now_ms)), now_ms)
        assert end_ms is not None
        assert first_change_ms(WAYS[name], now_ms, end_ms) is None
        now_ms += step_ms


# Random encodings

PARTS = {
    "year": "%Y", "year of century": "%y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S",
    "day of year": "%j", "week": "%V", "weekday": "%a", "weekday in full": "%A", "month name": "%b", "half day": "%p",
    "hour of twelve": "%I", "number of the weekday": "%u",
}  # fmt: skip
ZONED = ("%H:%M", "%H%M", "%Y%m%d", "%d %b %Y", "%A %d %B %H h %M", "%Y%m%dT%H%M%S")
OFFSETS = (0, 60, -300, 330, 540, 345, -570, 825)


def nested(encoding: Encoding, nesting: str) -> Encoding:
    if nesting == "list":
        return lambda now: {"$in": ["other", encoding(now)]}
    if nesting == "document":
        return lambda now: {"$elemMatch": {"slot": {"$eq": encoding(now)}}}
    return encoding


@st.composite
def encodings(draw: st.DrawFn) -> Encoding:
    kind = draw(st.sampled_from(("layout", "zone", "quotient", "base", "parts")))
    nesting = draw(st.sampled_from(("", "list", "document")))
    if kind == "layout":
        between = draw(st.sampled_from((" ", "-", "/", ":", ".", "_", ", ", "|")))
        layout = between.join(draw(st.lists(st.sampled_from(sorted(PARTS.values())), min_size=1, max_size=6)))
        around = draw(st.sampled_from(("{}", "key:{}", "<{}>", "v9-{}-final")))
        return nested(lambda now: around.format(now.strftime(layout)), nesting)
    if kind == "zone":
        layout = draw(st.sampled_from(ZONED))
        zone = timezone(timedelta(minutes=draw(st.sampled_from(OFFSETS))))
        return nested(lambda now: now.astimezone(zone).strftime(layout), nesting)
    if kind == "quotient":
        unit_ms = draw(st.one_of(st.integers(1, 3_600).map(lambda unit: unit * 1000), st.integers(1, 100_000)))
        return nested(lambda now: ms(now) // unit_ms, nesting)
    if kind == "base":
        base = draw(st.integers(2, 36))
        unit_ms = draw(st.one_of(st.sampled_from((1, 1000)), st.integers(1, 3_600).map(lambda unit: unit * 1000)))
        return nested(lambda now: in_base(ms(now) // unit_ms, base), nesting)
    layouts = draw(st.lists(st.sampled_from(("%Y", "%m", "%d", "%H", "%M", "%S", "%j")), min_size=1, max_size=5))
    return nested(lambda now: [int(now.strftime(layout)) for layout in layouts], nesting)


@given(
    encodings(), st.integers(0, 800 * 86_400_000), st.lists(st.integers(1, 90_000_000), max_size=4), st.integers(0, 40)
)
def test_random_encodings_are_never_used_beyond_the_instant_at_which_they_change(
    encoding: Encoding, start_ms: int, steps: list[int], took_ms: int
) -> None:
    seen, started_ms = SeenConstants(), ms(NOW) + start_ms
    for step_ms in (*steps, 0):
        looked_ms = started_ms + took_ms // 2
        end_ms = until_ms(seen, encoding(at(looked_ms)), started_ms, took_ms=took_ms)
        assert end_ms is not None, encoding(at(looked_ms))
        assert first_change_ms(encoding, looked_ms, end_ms) is None, encoding(at(looked_ms))
        started_ms += step_ms


@pytest.mark.parametrize("unit_s", [3_590, 3_591, 3_595, 3_599, 3_600])
def test_odd_units_of_just_an_hour_are_recognised(unit_s: int) -> None:
    """Fewer than 500,000 of them have passed since 1970."""
    seen, now_ms = SeenConstants(), ms(NOW)

    def encoding(now: datetime) -> int:
        return ms(now) // (unit_s * 1000)

    end_ms = until_ms(seen, encoding(NOW), now_ms)
    assert end_ms is not None
    assert first_change_ms(encoding, now_ms, end_ms) is None


# Literals

LITERALS = (
    42, 7, 0, -3, 250, 99_999, 611_901, 4_711_000, 3.5, "active", "Paris", "a", "EUR", "user-1234", "B-77-12", "b3c9", "JFK",
    "sun", "3rd floor", [1, 2, 3], {"$gte": 10, "$lt": 59},
)  # fmt: skip


@given(st.sampled_from(LITERALS), st.integers(0, 300 * 86_400_000))
def test_a_literal_lives_on_once_its_coincidences_are_over(value: Any, start_ms: int) -> None:
    """Every coincidence of the first sight has ended a year and a bit later, or still holds."""
    seen, now_ms = SeenConstants(), ms(NOW) + start_ms
    for step_ms in (0, 397 * 86_400_000 + 5_025_017, 3_600_000 * 7 + 61_011, 9 * 86_400_000 + 13_013):
        now_ms += step_ms
        until_ms(seen, value, now_ms, took_ms=5)
    later_ms = now_ms + 40 * 86_400_000 + 7_777_777
    assert until_ms(seen, value, later_ms, took_ms=5) is None


@pytest.mark.parametrize("value", [42, "active", "user-1234", 611_901])
def test_a_literal_costs_one_short_life_at_most(value: Any) -> None:
    """For a first sight at any minute of the day, its coincidences are over two days later, with rare exceptions."""
    short = 0
    for minute in range(0, 1440, 7):
        seen, now_ms = SeenConstants(), ms(NOW) + minute * 60_000
        until_ms(seen, value, now_ms)
        short += until_ms(seen, value, now_ms + 50 * 3_600_000 + 61_001) is not None
    assert short <= 10


def test_a_number_that_no_part_can_be_is_a_literal_at_once() -> None:
    assert until_ms(SeenConstants(), 99_999, ms(NOW)) is None
    assert until_ms(SeenConstants(), "active", ms(NOW)) is None


@pytest.mark.parametrize(
    ("value", "requested"),
    [
        (53, "/departures?minute=53"), ("14:53", "/departures?at=14%3A53"), ("board-53-departures", "/boards/53"),
        ("NOV", "/months/nov"), (ms(NOW) // 1000 // 40, f"/slots/{ms(NOW) // 1000 // 40}"),
    ],
)  # fmt: skip
def test_values_of_the_request_are_no_hidden_input(value: Any, requested: str) -> None:
    assert until_ms(SeenConstants(), value, ms(NOW)) is not None
    seen = SeenConstants()
    assert until_ms(seen, value, ms(NOW), requested=requested) is None
    assert until_ms(seen, value, ms(NOW)) is not None  # it has not become a literal by that


def test_constants_of_other_routes_are_others() -> None:
    """One handler's literal is another's hour."""
    seen = SeenConstants()
    constants = constants_of("shop.items", filter={"hour": 14})
    nine_ms = ms(NOW) - 5 * 3_600_000 - 7_777_777
    assert not list(seen.ends_ms("fixed", constants, started_ms=nine_ms, now_ms=nine_ms, asked=AskedText()))
    now_ms = ms(NOW)
    assert not list(seen.ends_ms("fixed", constants, started_ms=now_ms, now_ms=now_ms, asked=AskedText()))
    assert list(seen.ends_ms("computed", constants, started_ms=now_ms, now_ms=now_ms, asked=AskedText()))


def test_forgotten_values_are_searched_again() -> None:
    seen = SeenConstants(most=2)
    before_ms = ms(NOW) - 3_600_000 * 5 - 120_000
    assert until_ms(seen, 53, before_ms) is None
    assert until_ms(seen, 53, ms(NOW)) is None
    for other in ("x", "y", "z"):
        until_ms(seen, other, ms(NOW))
    assert until_ms(seen, 53, ms(NOW)) is not None


def test_limits_sorts_and_flags_are_no_constants() -> None:
    pipeline = [
        {"$match": {"a": 7}},
        {"$sort": {"b": 1}},
        {"$skip": 14},
        {"$limit": 53},
        {"$project": {"c": 1, "d": 0}},
    ]
    assert [constant.text for constant in constants_of("shop.items", pipeline=pipeline)] == ["7"]
    assert not constants_of("shop.items", projection={"c": 1, "d": False, "e": {"$slice": 14}})
