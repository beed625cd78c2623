"""Values that may stem from the clock: which they are, and until when they stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from hypothesis import assume, given
from hypothesis import strategies as st

from quaestor.capture.clock_values import ClockValue, named, valid_until_ms
from quaestor.capture.snapshot import Findings, snapshot

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = datetime(2026, 11, 22, 14, 53, 27, 345_000, tzinfo=UTC)
TOOK_MS = 20


def ms(moment: datetime) -> int:
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def clock_values(value: Any) -> list[ClockValue]:
    findings = Findings()
    snapshot(value, findings, lambda: 4)
    return findings.clock_values


def until(value: Any, now: datetime = NOW, *, took_ms: int = TOOK_MS, requested: str = "", local_ms: int = 0) -> Any:
    """For ever, over, or the time of day when it is over."""
    started_ms = ms(now)
    ends = [
        valid_until_ms(
            clock_value,
            started_ms=started_ms,
            now_ms=started_ms + took_ms,
            window_ms=300_000,
            local_ms=(local_ms,),
            asked=named(requested),
        )
        for clock_value in clock_values(value)
    ]
    end_ms = min((end for end in ends if end is not None), default=None)
    if end_ms is None:
        return "for ever"
    if end_ms <= started_ms + took_ms:
        return "over"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=end_ms)).strftime("%d %H:%M")


NAIVE = NOW.replace(tzinfo=None)
SECOND = NOW.replace(microsecond=0)
HOUR_AGO = NOW - timedelta(hours=1)
MIDNIGHT = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
BERLIN = NOW.astimezone(ZoneInfo("Europe/Berlin")).replace(hour=0, minute=0, second=0, microsecond=0)
EPOCH_S = int(NOW.timestamp())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (HOUR_AGO, "over"),
        (NAIVE - timedelta(hours=1), "over"),
        (SECOND - timedelta(hours=1), "over"),
        (NOW - timedelta(seconds=999), "over"),
        (NOW + timedelta(days=365), "over"),
        (NOW - timedelta(seconds=77), "over"),
        (DatetimeMS(ms(HOUR_AGO)), "over"),
        (EPOCH_S - 3600, "over"),
        (NOW.timestamp() - 3600, "over"),
        (ms(NOW) - HOUR, "over"),
        (ms(NOW) * 1000 - 3_600_000_000, "over"),
        (str(EPOCH_S - 3600), "over"),
        (bson.ObjectId.from_datetime(NOW - timedelta(seconds=30)), "over"),
        (bson.ObjectId.from_datetime(NOW - timedelta(hours=2)), "over"),
        (bson.Timestamp(EPOCH_S - 600, 1), "over"),
        (HOUR_AGO.isoformat(), "over"),
        (HOUR_AGO.strftime("%Y-%m-%d %H:%M:%S"), "over"),
        (HOUR_AGO.strftime("%Y-%m-%dT%H:%M:%SZ"), "over"),
        (HOUR_AGO.astimezone(timezone(timedelta(hours=5, minutes=45))).strftime("%Y-%m-%dT%H:%M:%S"), "over"),
        (NOW.strftime("%H:%M:%S"), "over"),
        (HOUR_AGO.strftime("%H:%M:%S"), "over"),
        (NOW.strftime("%H:%M"), "22 14:54"),
        (NOW.replace(second=0, microsecond=0), "22 14:54"),
        (NOW.replace(minute=35, second=0, microsecond=0), "22 14:55"),
        (NOW.replace(minute=30, second=0, microsecond=0), "22 15:00"),
        (NOW.replace(minute=0, second=0, microsecond=0), "22 15:00"),
        (NOW.replace(minute=0, second=0, microsecond=0).isoformat(), "22 15:00"),
        (NOW.strftime("%Y-%m-%dT%H"), "22 15:00"),
        (MIDNIGHT, "23 00:00"),
        (MIDNIGHT.replace(tzinfo=None), "23 00:00"),
        (MIDNIGHT - timedelta(days=3), "23 00:00"),
        (MIDNIGHT.replace(day=1), "23 00:00"),
        (int(MIDNIGHT.timestamp()), "23 00:00"),
        (BERLIN, "22 22:00"),
        (BERLIN.astimezone(UTC), "22 15:00"),
        ("2026-11-22", "22 15:00"),
        ("2026-11", "22 15:00"),
        ("20261121", "22 15:00"),
        (20261122, "22 15:00"),
        (EPOCH_S // 60, "22 14:54"),
        (EPOCH_S // 900, "22 15:00"),
        (EPOCH_S // 3600 - 1, "22 15:00"),
        (EPOCH_S // 86400, "23 00:00"),
        (NOW.date().toordinal(), "23 00:00"),
        (datetime(2013, 1, 1), "for ever"),
        ("2013-01-01", "for ever"),
        (datetime(2026, 3, 4, 5, 6, 7, 891_000), "for ever"),
        (datetime(2026, 3, 4, 5, 6, 8), "for ever"),
        (1_772_600_768, "for ever"),
        (bson.ObjectId(), "for ever"),
        (bson.ObjectId("692100000000000000000001"), "for ever"),
        ("JFK", "for ever"),
        ("10:30 from Paddington", "for ever"),
        (42, "for ever"),
        (123_456, "for ever"),
        (True, "for ever"),
        (float("nan"), "for ever"),
    ],
)
def test_how_long_a_value_stays_what_it_is(value: Any, expected: str) -> None:
    assert until(value) == expected


@pytest.mark.parametrize(
    ("value", "requested"),
    [
        (HOUR_AGO, "/events?since=" + HOUR_AGO.isoformat().replace("+", "%2B")),
        (EPOCH_S - 3600, f"/events/{EPOCH_S - 3600}"),
        (MIDNIGHT - timedelta(days=2), "/flights?date=2026-11-20"),
        (BERLIN, "/flights?date=2026-11-22"),
        ("2026-11-20", "/flights/2026-11-20"),
        ("14:30", "/open?at=14%3A30"),
    ],
)
def test_times_that_the_request_names_are_the_clients(value: Any, requested: str) -> None:
    assert until(value) != "for ever"
    assert until(value, requested=requested) == "for ever"


def test_a_floored_time_may_have_been_floored_to_less() -> None:
    """Nine o'clock, at 10:00:20, is this hour or this minute, an hour ago: a minute later it is known which."""
    ten = NOW.replace(hour=10, minute=0, second=20)
    nine = NOW.replace(hour=9, minute=0, second=0, microsecond=0)
    assert until(nine, ten) == "22 10:01"
    assert until(nine, ten + timedelta(minutes=1)) == "22 10:05"
    assert until(nine, ten + timedelta(minutes=53)) == "22 11:00"
    assert until(nine, ten.replace(second=0)) == "over"


def test_a_unit_that_ended_while_the_handler_ran_is_over() -> None:
    started = NOW.replace(second=59, microsecond=990_000)
    assert until(started.replace(second=0, microsecond=0), started) == "over"


def test_local_midnight_without_a_zone_ends_with_the_local_day() -> None:
    """A naive datetime of local time is sent to the database as if it were UTC."""
    assert until(MIDNIGHT.replace(tzinfo=None), local_ms=2 * HOUR) == "22 22:00"


FORMS: dict[str, Callable[[datetime], Any]] = {
    "aware": lambda at: at,
    "naive": lambda at: at.replace(tzinfo=None),
    "elsewhere": lambda at: at.astimezone(timezone(timedelta(hours=-3, minutes=-30))),
    "seconds": lambda at: int(at.timestamp()),
    "float": lambda at: ms(at) / 1000,
    "milliseconds": ms,
    "timestamp": lambda at: bson.Timestamp(int(at.timestamp()), 1),
    "ObjectId": lambda at: bson.ObjectId.from_datetime(at),
    "ISO": lambda at: at.isoformat(),
    "ISO, no zone": lambda at: at.strftime("%Y-%m-%dT%H:%M:%S"),
    "time of day": lambda at: at.strftime("%H:%M:%S"),
}
FINE = {"aware", "naive", "elsewhere", "float", "milliseconds", "ISO"}
ROUND = {1: MINUTE, 60: 5 * MINUTE, 300: 15 * MINUTE, 600: 30 * MINUTE, 900: 30 * MINUTE, 1800: HOUR, 86400: DAY}
moments = st.integers(ms(datetime(2025, 1, 1, tzinfo=UTC)), ms(datetime(2027, 12, 31, tzinfo=UTC)))


def at(moment_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment_ms)


@given(moments, st.integers(0, 90), st.sampled_from(sorted(FORMS)), st.integers(-3000, 3000))
def test_now_and_a_round_amount_is_over_at_once(now_ms: int, took_ms: int, form: str, minutes: int) -> None:
    """Somewhere within the request the handler looked at the clock."""
    looked = at(now_ms + took_ms // 2)
    value = FORMS[form](looked + timedelta(minutes=minutes))
    assume(form in FINE or (now_ms + took_ms // 2) % MINUTE >= 1000)
    assert until(value, at(now_ms), took_ms=took_ms) == "over" or (now_ms + took_ms // 2) % MINUTE < 1000


@given(
    moments,
    st.sampled_from(sorted(ROUND)),
    st.integers(-30, 30),
    st.sampled_from(sorted(FORMS)),
    st.integers(0, 1 << 40),
)
def test_a_floored_time_does_not_outlive_its_unit(now_ms: int, unit_s: int, shift: int, form: str, later: int) -> None:
    """At any moment before the returned end, the handler would compute the same."""

    def handler(moment_ms: int) -> Any:
        floored = moment_ms // (unit_s * 1000) * unit_s * 1000
        return FORMS[form](at(floored + shift * ROUND[unit_s]))

    assume(not (unit_s == 86400 and form == "time of day"))
    assume(unit_s == 86400 or abs(shift * ROUND[unit_s]) <= 6 * HOUR)
    value = handler(now_ms)
    end = [
        valid_until_ms(clock_value, started_ms=now_ms, now_ms=now_ms, window_ms=300_000, local_ms=(0,))
        for clock_value in clock_values(value)
    ]
    assert end
    assert end[0] is not None
    if end[0] > now_ms:
        assert handler(now_ms + later % (end[0] - now_ms)) == value
        assert handler(end[0] - 1) == value
