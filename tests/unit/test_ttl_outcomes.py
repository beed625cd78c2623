"""Outcomes of lifetimes, as a sample; and the numbers behind a lifetime."""

from __future__ import annotations

import random

import pytest

from quaestor.ttl.calibration import survival
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.outcomes import Outcomes
from quaestor.ttl.parameters import TtlParameters, Tuning

NOW_MS = 1_700_000_000_000


def test_of_each_lifetime_it_is_known_how_it_stands_now() -> None:
    """Changed, alive, given up, and watched no longer than it was guarded."""
    sample = Outcomes()
    for name, watched_ms in (("changed", None), ("alive", None), ("withdrawn", None), ("guarded", 2_000)):
        sample.give([name], name, now_ms=NOW_MS, given_ms=1_000, watched_ms=watched_ms)
    sample.changed("changed", now_ms=NOW_MS + 700)
    sample.withdrawn("withdrawn", now_ms=NOW_MS + 800)
    outcomes = dict(sample.so_far(now_ms=NOW_MS + 5_000))
    assert (outcomes["changed"].lived_ms, outcomes["changed"].changed, outcomes["changed"].early) == (700, True, True)
    assert (outcomes["alive"].lived_ms, outcomes["alive"].changed) == (5_000, False)
    assert (outcomes["withdrawn"].lived_ms, outcomes["withdrawn"].judged) == (800, False)
    assert (outcomes["guarded"].lived_ms, outcomes["guarded"].judged) == (2_000, True)


def test_a_result_changes_with_any_of_its_queries_and_is_open_once() -> None:
    sample = Outcomes()
    sample.give(["a", "b"], "k", now_ms=NOW_MS, given_ms=1_000, watched_ms=None)
    sample.give(["b", "c"], "k", now_ms=NOW_MS + 10, given_ms=1_000, watched_ms=None)
    assert len(sample) == 1
    sample.changed("b", now_ms=NOW_MS + 100)
    sample.changed("a", now_ms=NOW_MS + 900)
    assert [outcome.lived_ms for _, outcome in sample.so_far(now_ms=NOW_MS + 1_000)] == [100]
    sample.give(["b", "c"], "k", now_ms=NOW_MS + 1_000, given_ms=1_000, watched_ms=None)
    assert len(sample) == 2


def test_the_sample_is_bounded_in_number_and_in_rate() -> None:
    """An outcome that has left the sample changes nothing any more."""
    sample = Outcomes(limit=50, per_second=2.0)
    for i in range(10_000):
        sample.give([f"q{i}"], "k", now_ms=NOW_MS + i, given_ms=1_000, watched_ms=None)
    assert len(sample) == 50
    assert len(sample._open) == 50
    sample.changed("q0", now_ms=NOW_MS + 20_000)
    assert not any(outcome.changed for _, outcome in sample.so_far(now_ms=NOW_MS + 20_000))
    later = Outcomes(per_second=2.0)
    for i in range(20_000):
        later.give([f"q{i}"], "k", now_ms=NOW_MS + 10 * i, given_ms=1_000, watched_ms=None)
    assert 256 <= len(later) <= 256 + 2 * 200 + 1


@pytest.mark.parametrize("mean_ms", [5_000, 200_000])
def test_the_curve_of_the_sample_is_that_of_the_lifetimes(mean_ms: int) -> None:
    """Of a Poisson process, also where most of them outlive the sample's time: censoring biases nothing."""
    dice, sample = random.Random(3), Outcomes(per_second=1_000)
    ends = []
    for i in range(3_000):
        at_ms = NOW_MS + 20 * i
        sample.give([f"q{i}"], "k", now_ms=at_ms, given_ms=1_000, watched_ms=None)
        ends.append((at_ms + int(dice.expovariate(1 / mean_ms)), f"q{i}"))
    for at_ms, name in sorted(ends):
        if at_ms <= NOW_MS + 60_000:
            sample.changed(name, now_ms=at_ms)
    curve = survival(outcome for _, outcome in sample.so_far(now_ms=NOW_MS + 60_000))
    at_ms = min(mean_ms, 40_000)
    alive = next(share for ms, share in reversed(curve) if ms <= at_ms)
    assert alive == pytest.approx(2.718281828 ** (-at_ms / mean_ms), abs=0.05)


@pytest.mark.parametrize("tuning", [Tuning(), Tuning(quantile=0.2, false_positives=0.1), Tuning(estimator="static")])
def test_the_reasons_are_those_of_the_lifetime_that_is_given(tuning: Tuning) -> None:
    """The same number, with what it is made of; of a baseline only its bounds."""
    chosen = ChosenEstimators(TtlParameters(default=tuning), false_positive_rate=lambda _: 0.0)
    for i in range(4):
        chosen.observe_read(["q"], now_ms=NOW_MS + 10_000 * i, given_ms=5_000, kind="k")
        chosen.observe_invalidation("q", now_ms=NOW_MS + 10_000 * i + 8_000)
    now_ms = NOW_MS + 40_000
    why = chosen.reasons(["q"], write_rate_hz=0.1, now_ms=now_ms, kind="k")
    assert why["ttl_ms"] == chosen.estimate_ms(["q"], write_rate_hz=0.1, now_ms=now_ms, kind="k")
    assert why["estimator"] == tuning.estimator
    if tuning.estimator == "lifetimes":
        assert (why["lifetimes"], why["known"], why["quantile"]) == (4, 1, tuning.quantile)
        expected = float(why["means"]) / float(why["rate_hz"]) * 1_000 * float(why["factor"])
        assert why["ttl_ms"] == pytest.approx(expected, rel=0.01)
        assert chosen.judged()["k"][0] == 4
    else:
        assert chosen.judged() == {}


def test_outcomes_are_noted_once_somebody_wants_them() -> None:
    chosen = ChosenEstimators(TtlParameters(), false_positive_rate=lambda _: 0.0)
    chosen.observe_read(["before"], now_ms=NOW_MS, given_ms=1_000, kind="k")
    chosen.outcomes = Outcomes()
    chosen.observe_read(["q"], now_ms=NOW_MS, given_ms=1_000, kind="k")
    chosen.observe_read(["none"], now_ms=NOW_MS, kind="k")
    chosen.observe_invalidation("q", now_ms=NOW_MS + 5)
    assert [outcome.lived_ms for _, outcome in chosen.outcomes.so_far(now_ms=NOW_MS + 10)] == [5]
