"""Lifetimes on processes whose truth is known: the quantile that was asked for is the share that changes in time."""

from __future__ import annotations

import random

import pytest

from quaestor.ttl import TtlEstimator
from quaestor.ttl.baselines import AgeTtl, DynamicTtl, OracleTtl, StaticTtl
from quaestor.ttl.calibration import Outcome, calibration, error_distribution, share_changed, survival
from quaestor.ttl.constrained import Budgets, ConstrainedEstimator
from quaestor.ttl.daily_cycle import DailyCycle
from tests.change_processes import START_MS, Process, bursty, cyclic, fast_cycle, fills, one_poisson, zipf

DECILES = [i / 10 for i in range(1, 10)]


def dice() -> random.Random:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    return random.Random(seed)


def make(quantile: float, **options: object) -> TtlEstimator:
    return TtlEstimator(ttl_min_ms=1, ttl_max_ms=10**9, quantile=quantile, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("quantile", DECILES)
@pytest.mark.parametrize("process", [one_poisson, bursty, cyclic, zipf], ids=lambda process: process.__name__)
def test_the_share_that_changes_before_its_ttl_ends_is_the_quantile(process: Process, quantile: float) -> None:
    """The share is at most two points off, with any pattern of writes, from the 1,000th fill on."""
    given = fills(make(quantile), process, count=7_000, dice=dice())
    _, share = share_changed(outcome for _, outcome in given[1_000:])
    assert share == pytest.approx(quantile, abs=0.02)


def test_without_judging_what_was_given_bursts_are_taken_for_a_steady_rate() -> None:
    """The tracker is what keeps the promise: the model alone is far off."""
    given = fills(make(0.5, tracked=False), bursty, count=4_000, dice=dice())
    _, share = share_changed(outcome for _, outcome in given[1_000:])
    assert abs(share - 0.5) > 0.03


def test_a_daily_cycle_keeps_the_quantile_in_the_busy_half_and_in_the_quiet_one() -> None:
    """Twenty-five times as many writes by day as by night: both are within eight points, and the cycle is learned."""
    period_ms = 120_000
    known = DailyCycle(period_ms=period_ms, parts=12)
    given = fills(make(0.5, cycle=known), fast_cycle, count=30_000, dice=dice())[10_000:]
    for busy in (True, False):
        half = [outcome for at_ms, outcome in given if (at_ms % period_ms < period_ms / 2) is busy]
        _, share = share_changed(half)
        assert share == pytest.approx(0.5, abs=0.08), busy
    assert min(known.factors[:6]) > 2 * max(known.factors[6:])


def test_time_by_the_clock_and_elapsed_time_are_inverse() -> None:
    cycle = DailyCycle(period_ms=1_000, parts=4)
    for n in range(400):
        cycle.watched(n * 1_000, (n + 1) * 1_000, 500.0)
        for _ in range(4):
            cycle.changed(n * 1_000 + 100)
    assert cycle.factors[0] > 3 > 1 > cycle.factors[1]
    assert sum(cycle.factors) == pytest.approx(4)
    for from_ms in (0, 130, 999, 123_456):
        for later_ms in (0, 1, 249, 1_000, 7_777):
            elapsed = cycle.elapsed(from_ms, from_ms + later_ms)
            assert cycle.clock_ms(from_ms, elapsed) == pytest.approx(later_ms, abs=0.01)


def test_records_that_enter_a_result_count_for_the_first_ttl_of_the_next_query() -> None:
    """Members written once in 100 s, and changes once in 10 s: nine tenths are records that enter. A query that nobody has
    watched yet is given that rate beside its members' one; a query of another collection is not."""
    estimator, now_ms = make(0.5), START_MS
    for i in range(200):
        estimator.observe_read([f"q{i}"], now_ms=now_ms, write_rate_hz=0.01, kind="db.items")
        now_ms += 10_000
        estimator.observe_invalidation(f"q{i}", now_ms=now_ms)
    first_ms = estimator.estimate_ms(["new"], write_rate_hz=0.01, now_ms=now_ms, kind="db.items")
    assert first_ms == pytest.approx(6_931, rel=0.05)
    assert estimator.estimate_ms(["new"], write_rate_hz=0.0, now_ms=now_ms, kind="db.items") == pytest.approx(
        7_701, rel=0.05
    )
    assert estimator.estimate_ms(["new"], write_rate_hz=0.01, now_ms=now_ms, kind="db.other") == pytest.approx(
        69_314, rel=0.01
    )


def test_queries_that_never_change_count_for_the_rate_of_their_collection_too() -> None:
    """One query in ten changes every 10 s, the others never: the mean rate is a tenth,
    also while no client reads the others again.
    """
    estimator = make(0.5)
    estimator.observe_read([f"quiet{i}" for i in range(9)], now_ms=START_MS, kind="c")
    now_ms = START_MS
    for _ in range(100):
        estimator.observe_read(["busy"], now_ms=now_ms, kind="c")
        now_ms += 10_000
        estimator.observe_invalidation("busy", now_ms=now_ms)
    assert estimator.estimate_ms(["new"], write_rate_hz=0.0, now_ms=now_ms, kind="c") == pytest.approx(69_314, rel=0.1)


def test_a_budget_of_invalidations_is_kept_and_room_is_used_again() -> None:
    """Ten changes a second would invalidate live copies; at most two do. When the writes stop, lifetimes grow again."""
    inner = make(0.9)
    estimator = ConstrainedEstimator(
        inner, budgets=Budgets(invalidations_hz=2.0), ttl_min_ms=1, false_positive_rate=lambda keys: 0.0
    )
    source, now_ms, invalidated = dice(), float(START_MS), 0
    for i in range(8_000):
        name = f"q{i % 100}"
        given_ms = estimator.estimate_ms([name], write_rate_hz=0.1, now_ms=int(now_ms))
        estimator.observe_read([name], now_ms=int(now_ms), given_ms=given_ms, write_rate_hz=0.1)
        lived_ms = source.expovariate(0.1) * 1_000
        estimator.observe_invalidation(name, now_ms=int(now_ms + min(lived_ms, 90.0)))
        invalidated += i >= 6_000 and min(lived_ms, 90.0) < given_ms
        now_ms += 100
    assert invalidated / 200 <= 2.5
    assert estimator.factor < 0.9
    short = estimator.factor
    for i in range(2_000):
        estimator.observe_read(["still"], now_ms=int(now_ms) + i * 1_000, given_ms=1)
    assert estimator.factor > short


def test_a_budget_of_false_positives_shortens_what_would_fill_the_sketch() -> None:
    estimator = ConstrainedEstimator(
        make(0.9), budgets=Budgets(false_positives=0.01), ttl_min_ms=1, false_positive_rate=lambda keys: keys / 1_000
    )
    now_ms = START_MS
    for i in range(3_000):
        name = f"q{i}"
        given_ms = estimator.estimate_ms([name], write_rate_hz=0.01, now_ms=now_ms)
        estimator.observe_read([name], now_ms=now_ms, given_ms=given_ms, write_rate_hz=0.01)
        estimator.observe_invalidation(name, now_ms=now_ms + 50)
        now_ms += 100
    false_positives, _ = estimator.usage(now_ms)
    assert false_positives <= 0.02


def test_baselines_do_what_they_are_known_for() -> None:
    assert StaticTtl(5).estimate_ms(["q"], write_rate_hz=1e9, now_ms=START_MS) == 5
    age = AgeTtl(fraction=0.1, ttl_min_ms=1, ttl_max_ms=10**9)
    age.observe_read(["q"], now_ms=START_MS)
    assert age.estimate_ms(["q"], write_rate_hz=0, now_ms=START_MS + 1_000) == 100
    age.observe_invalidation("q", now_ms=START_MS + 1_000)
    assert age.estimate_ms(["q"], write_rate_hz=0, now_ms=START_MS + 1_500) == 50
    oracle = OracleTtl(lambda _, now_ms: now_ms + 77, ttl_min_ms=1, ttl_max_ms=10**9)
    assert oracle.estimate_ms(["q"], write_rate_hz=0, now_ms=START_MS) == 77


def test_a_dynamic_ttl_finds_the_quantile_of_one_kind() -> None:
    estimator = DynamicTtl(quantile=0.3, ttl_min_ms=1, ttl_max_ms=10**9)
    given = fills(estimator, one_poisson, count=5_000, dice=dice())
    _, share = share_changed(outcome for _, outcome in given[1_000:])
    assert share == pytest.approx(0.3, abs=0.02)


def test_the_survival_curve_takes_what_was_never_seen_to_end_into_account() -> None:
    """Kaplan and Meier's product by hand: 1, 2+, 3, 3, 4+, 5 (+: censored)."""
    lives = [(1, True), (2, False), (3, True), (3, True), (4, False), (5, True)]
    outcomes = [Outcome(given_ms=10, lived_ms=ms, changed=changed) for ms, changed in lives]
    steps = survival(outcomes)
    assert [at_ms for at_ms, _ in steps] == [1, 3, 5]
    assert [alive for _, alive in steps] == pytest.approx([5 / 6, 5 / 6 * 2 / 4, 0.0])


def test_outcomes_that_nobody_knows_are_not_counted() -> None:
    """Watched for less than the lifetime, and unchanged: it may have changed in time or not."""
    outcomes = [
        Outcome(given_ms=10, lived_ms=5, changed=True),
        Outcome(given_ms=10, lived_ms=5, changed=False),
        Outcome(given_ms=10, lived_ms=20, changed=False),
        Outcome(given_ms=10, lived_ms=40, changed=True),
    ]
    assert share_changed(outcomes) == (3, pytest.approx(1 / 3))
    assert [row["judged"] for row in calibration(outcomes, groups=3)] == [1, 1, 1]
    assert error_distribution(outcomes) == [(0.25, 0.5), (2.0, 1.0)]
    assert share_changed([]) == (0, 0.0)
    assert calibration([]) == [] == survival([]) == error_distribution([])


def test_watched_queries_are_bounded_by_open_ones_and_not_by_past_ones() -> None:
    """Lifetimes that ended early leave nothing behind that would keep later ones from being judged, or counted."""
    estimator, now_ms = make(0.5, max_queries=100), START_MS
    for _ in range(5_000):
        given_ms = estimator.estimate_ms(["q"], write_rate_hz=0.001, now_ms=now_ms, kind="c")
        estimator.observe_read(["q"], now_ms=now_ms, ttl_ms=10**8, given_ms=given_ms, kind="c")
        now_ms += 10
        estimator.observe_invalidation("q", now_ms=now_ms)
    judged, _, _ = estimator.judged()["c"]
    assert judged >= 4_900
    assert estimator.estimate_ms(["new"], write_rate_hz=0.0, now_ms=now_ms, kind="c") < 100
