"""Write rates by record: right at a cold start, right later, in bounded memory."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.ttl.write_rates import WriteRates

START_MS = 1_700_000_000_000


def written(rates: WriteRates, record: str, *, every_ms: int, from_ms: int, until_ms: int) -> None:
    for at_ms in range(from_ms, until_ms, every_ms):
        rates.observe(record, now_ms=at_ms)


@pytest.mark.parametrize("watched_s", [5, 30, 60, 61, 119, 121, 600, 7_200])
def test_a_steady_rate_is_right_however_long_it_was_watched(watched_s: int) -> None:
    """Young, just after the memory has filled, long after: two writes a second are two writes a second."""
    rates = WriteRates(since_ms=START_MS)
    end_ms = START_MS + watched_s * 1_000
    written(rates, "a", every_ms=500, from_ms=START_MS + 250, until_ms=end_ms)
    assert rates.rate_hz(["a"], now_ms=end_ms) == pytest.approx(2.0, rel=0.02)


def test_the_first_write_after_a_long_silence_is_not_a_burst() -> None:
    """Watching began an hour ago: one write since then is about one in the memory's length, not one in its first second."""
    rates = WriteRates(since_ms=START_MS)
    now_ms = START_MS + 3_600_000
    rates.observe("a", now_ms=now_ms)
    assert rates.rate_hz(["a"], now_ms=now_ms) < 0.02


def test_asking_starts_the_watch_too() -> None:
    rates = WriteRates()
    assert rates.rate_hz(["a"], now_ms=START_MS) == 0
    rates.observe("a", now_ms=START_MS + 600_000)
    assert rates.rate_hz(["a"], now_ms=START_MS + 600_000) < 0.02


def test_one_write_just_after_the_start_is_not_a_thousand_a_second() -> None:
    rates = WriteRates(since_ms=START_MS)
    rates.observe("a", now_ms=START_MS + 1)
    assert rates.rate_hz(["a"], now_ms=START_MS + 2) == pytest.approx(1.0, rel=0.02)


def test_ended_writes_are_forgotten_and_new_ones_are_noticed() -> None:
    rates = WriteRates(since_ms=START_MS)
    middle_ms = START_MS + 600_000
    written(rates, "before", every_ms=100, from_ms=START_MS, until_ms=middle_ms)
    written(rates, "after", every_ms=100, from_ms=middle_ms, until_ms=middle_ms + 600_000)
    end_ms = middle_ms + 600_000
    assert rates.rate_hz(["before"], now_ms=end_ms) < 0.02
    assert rates.rate_hz(["after"], now_ms=end_ms) == pytest.approx(10.0, rel=0.02)


def test_rates_of_several_records_add_up_and_unknown_ones_have_none() -> None:
    rates = WriteRates(since_ms=START_MS)
    end_ms = START_MS + 100_000
    written(rates, "a", every_ms=1_000, from_ms=START_MS, until_ms=end_ms)
    written(rates, "b", every_ms=250, from_ms=START_MS, until_ms=end_ms)
    assert rates.rate_hz(["a", "b", "never"], now_ms=end_ms) == pytest.approx(5.0, rel=0.05)
    assert rates.rate_hz(["never"], now_ms=end_ms) == 0
    assert rates.rate_hz([], now_ms=end_ms) == 0


def test_memory_is_bounded_and_the_record_written_longest_ago_goes_first() -> None:
    rates = WriteRates(since_ms=START_MS, max_records=2)
    for at_ms, record in enumerate("abac"):
        rates.observe(record, now_ms=START_MS + at_ms)
    assert len(rates) == 2
    assert rates.rate_hz(["b"], now_ms=START_MS + 4) == 0
    assert rates.rate_hz(["a"], now_ms=START_MS + 4) > rates.rate_hz(["c"], now_ms=START_MS + 4) > 0


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=50))
def test_the_order_in_which_writes_are_reported_does_not_matter(offsets_ms: list[int]) -> None:
    """A replay of old writes among new ones gives the rate that the right order gives."""
    shuffled, ordered = WriteRates(since_ms=START_MS), WriteRates(since_ms=START_MS)
    for offset_ms in offsets_ms:
        shuffled.observe("a", now_ms=START_MS + offset_ms)
    for offset_ms in sorted(offsets_ms):
        ordered.observe("a", now_ms=START_MS + offset_ms)
    end_ms = START_MS + 300_000
    assert shuffled.rate_hz(["a"], now_ms=end_ms) == pytest.approx(ordered.rate_hz(["a"], now_ms=end_ms))


@pytest.mark.parametrize("rate_hz", [0.1, 1.0, 20.0])
def test_poisson_writes_are_estimated_without_bias(rate_hz: float) -> None:
    """The mean over 300 records is within five standard errors of the truth."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    dice = random.Random(seed)
    rates = WriteRates(since_ms=START_MS)
    records = [str(i) for i in range(300)]
    for record in records:
        at_s = dice.expovariate(rate_hz)
        while at_s < 200:
            rates.observe(record, now_ms=START_MS + int(at_s * 1_000))
            at_s += dice.expovariate(rate_hz)
    mean_hz = rates.rate_hz(records, now_ms=START_MS + 200_000) / len(records)
    standard_error = (rate_hz / (2 * 86.6 * len(records))) ** 0.5 * 1.2
    assert abs(mean_hz - rate_hz) < 5 * standard_error


def test_a_process_that_runs_for_a_month_counts_as_one_that_has_just_begun() -> None:
    """Counts are sums of weights that grow with time; they are brought back before they leave the range of floats."""
    rates = WriteRates(since_ms=START_MS)
    for day in range(30):
        begin_ms = START_MS + day * 86_400_000
        written(rates, "a", every_ms=500, from_ms=begin_ms, until_ms=begin_ms + 600_000)
        assert rates.rate_hz(["a"], now_ms=begin_ms + 600_000) == pytest.approx(2.0, rel=0.02)
