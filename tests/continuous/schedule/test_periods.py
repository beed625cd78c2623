"""Periods: durations from seconds to weeks, and cron expressions."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from quaestor.continuous.schedule.periods import SECOND, Every, period
from quaestor.errors import ConfigurationError


def at(*parts: int, zone: str = "UTC") -> int:
    return int(datetime(*parts, tzinfo=ZoneInfo(zone)).timestamp()) * SECOND  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("10m", 600),
        ("2h", 7_200),
        ("1d", 86_400),
        ("2w", 1_209_600),
        ("PT10M", 600),
        ("P1W", 604_800),
        (" 5 m ", 300),
    ],
)
def test_a_duration_is_seconds_to_weeks(text: str, seconds: int) -> None:
    assert period(text) == Every(seconds * SECOND)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0s", "from 1 s"), ("54w", "53 w"), ("P1M", "no fixed length"), ("soon", "no duration"), ("", "no duration"),
        ("-5m", "no duration"), ("PT0.5S", "from 1 s"), ("cron: 61 * * * *", "no cron"), ("cron: x", "no cron"),
        ("cron: 0 0 30 2 *", "no cron"), ("cron: 0 8 * * * [Mars/Base]", "no time zone"),
        ("cron: 0 8 * * * [../etc]", "no time zone"),
    ],
)  # fmt: skip
def test_a_malformed_period_names_the_remedy(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        period(text)


def test_equal_lengths_are_due_together() -> None:
    """Whenever each was installed; a stretched period keeps a part of the same instants."""
    minute = period("1m")
    assert (
        minute.next(at(2026, 11, 28, 12, 0, 1)) == minute.next(at(2026, 11, 28, 12, 0, 59)) == at(2026, 11, 28, 12, 1)
    )
    assert minute.next(at(2026, 11, 28, 12, 1)) == at(2026, 11, 28, 12, 2)
    assert minute.next(at(2026, 11, 28, 12, 1), factor=4) == at(2026, 11, 28, 12, 4)


def test_weeks_begin_on_mondays() -> None:
    assert period("1w").next(at(2026, 11, 28, 12)) == at(2026, 11, 30)
    assert datetime(2026, 11, 30, tzinfo=UTC).weekday() == 0


def test_cron_follows_its_time_zone() -> None:
    """Eight o'clock in Berlin, in winter and in summer."""
    mondays = period("cron: 0 8 * * MON [Europe/Berlin]")
    assert mondays.next(at(2026, 11, 28)) == at(2026, 11, 30, 8, zone="Europe/Berlin") == at(2026, 11, 30, 7)
    assert mondays.next(at(2026, 6, 28)) == at(2026, 6, 29, 6)
    assert period("cron: */10 * * * *").next(at(2026, 11, 28, 12, 10)) == at(2026, 11, 28, 12, 20)
