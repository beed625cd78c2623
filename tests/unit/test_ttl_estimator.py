"""Lifetimes of query results: the table of cases, and what random writes make of the estimates."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.errors import ConfigurationError
from quaestor.ttl import TtlEstimator

NOW_MS = 1_700_000_000_000
LN2 = math.log(2)


def make(**options: float) -> TtlEstimator:
    values = {"ttl_min_ms": 1, "ttl_max_ms": 3_600_000, "quantile": 0.5, "alpha": 0.8} | options
    return TtlEstimator(**values)  # type: ignore[arg-type]


def invalidated_after(estimator: TtlEstimator, query_id: str, *lifetimes_ms: int, start_ms: int = NOW_MS) -> int:
    """Read, and invalidated that much later, again and again. Returns when the last one was."""
    now_ms = start_ms
    for lifetime_ms in lifetimes_ms:
        estimator.observe_read([query_id], now_ms=now_ms, ttl_ms=lifetime_ms)
        now_ms += lifetime_ms
        estimator.observe_invalidation(query_id, now_ms=now_ms)
    return now_ms


@pytest.mark.parametrize(
    ("rate_hz", "quantile", "expected_ms"),
    [
        (0.0, 0.5, 3_600_000),
        (1.0, 0.5, 693),
        (0.1, 0.5, 6_931),
        (1.0, 0.9, 2_302),
        (1.0, 0.1, 105),
        (1e-9, 0.5, 3_600_000),
        (1e9, 0.5, 1),
    ],
)
def test_the_first_ttl_is_the_quantile_of_the_summed_write_rates(
    rate_hz: float, quantile: float, expected_ms: int
) -> None:
    """-ln(1 - p) / λ, within the bounds; never written lives longest."""
    assert make(quantile=quantile).estimate_ms(["q"], write_rate_hz=rate_hz, now_ms=NOW_MS) == expected_ms


def test_the_first_lifetime_observed_replaces_the_guess() -> None:
    estimator = make()
    invalidated_after(estimator, "q", 10_000)
    assert estimator.estimate_ms(["q"], write_rate_hz=0.0, now_ms=NOW_MS + 10_000) == int(LN2 * 10_000)
    assert estimator.estimate_ms(["q"], write_rate_hz=50.0, now_ms=NOW_MS + 10_000) == int(LN2 * 10_000)


def test_after_the_first_few_the_average_moves_by_alpha() -> None:
    """Plain averages of 1, 2, 3, 4 and 5 lifetimes, then 0.8 of the past and 0.2 of the newest."""
    estimator = make()
    now_ms = invalidated_after(estimator, "q", 1_000, 2_000, 3_000, 4_000, 5_000)
    assert estimator.estimate_ms(["q"], write_rate_hz=0.0, now_ms=now_ms) == pytest.approx(LN2 * 3_000, abs=1)
    now_ms = invalidated_after(estimator, "q", 10_000, start_ms=now_ms)
    expected_ms = LN2 * (0.8 * 3_000 + 0.2 * 10_000)
    assert estimator.estimate_ms(["q"], write_rate_hz=0.0, now_ms=now_ms) == pytest.approx(expected_ms, abs=1)


def test_expiry_and_rereading_do_not_cut_a_lifetime_short() -> None:
    """Read every second, invalidated after ten: the lifetime is ten seconds, not what the last read saw of it."""
    estimator = make()
    for i in range(10):
        estimator.observe_read(["q"], now_ms=NOW_MS + i * 1_000, ttl_ms=1_000)
    estimator.observe_invalidation("q", now_ms=NOW_MS + 10_000)
    assert estimator.estimate_ms(["q"], write_rate_hz=0.0, now_ms=NOW_MS + 10_000) == int(LN2 * 10_000)


def test_time_in_which_nobody_was_watching_does_not_count() -> None:
    """Guarded for one second, then for two, with a long gap in between: a lifetime of three seconds."""
    estimator = make()
    estimator.observe_read(["q"], now_ms=NOW_MS, ttl_ms=1_000)
    estimator.observe_read(["q"], now_ms=NOW_MS + 600_000, ttl_ms=5_000)
    estimator.observe_invalidation("q", now_ms=NOW_MS + 602_000)
    assert estimator.estimate_ms(["q"], write_rate_hz=0.0, now_ms=NOW_MS + 602_000) == int(LN2 * 3_000)


def test_a_second_invalidation_without_a_read_says_nothing() -> None:
    """Several registrations of one query die of the same write."""
    estimator = make()
    now_ms = invalidated_after(estimator, "q", 10_000)
    for later_ms in (0, 1, 5_000):
        estimator.observe_invalidation("q", now_ms=now_ms + later_ms)
    assert estimator.estimate_ms(["q"], write_rate_hz=0.0, now_ms=now_ms) == int(LN2 * 10_000)


def test_an_invalidation_of_what_was_never_read_here_is_ignored() -> None:
    estimator = make()
    estimator.observe_invalidation("foreign", now_ms=NOW_MS)
    assert len(estimator) == 0


def test_queries_of_one_response_add_their_rates() -> None:
    """The response lives until the first of them changes: 1 / (1/2 + 1/6) = 1.5 seconds on average."""
    estimator = make()
    now_ms = max(invalidated_after(estimator, "a", 2_000), invalidated_after(estimator, "b", 6_000))
    assert estimator.estimate_ms(["a", "b"], write_rate_hz=0.0, now_ms=now_ms) == int(LN2 * 1_500)
    assert estimator.estimate_ms(["a", "a"], write_rate_hz=0.0, now_ms=now_ms) == int(LN2 * 2_000)


def test_queries_without_a_history_get_their_share_of_the_write_rate() -> None:
    estimator = make()
    now_ms = invalidated_after(estimator, "a", 2_000)
    both = estimator.estimate_ms(["a", "new"], write_rate_hz=1.0, now_ms=now_ms)
    assert both == int(LN2 / (1 / 2_000 + 0.5 / 1_000))
    assert estimator.estimate_ms(["new"], write_rate_hz=1.0, now_ms=now_ms) == int(LN2 * 1_000)


def test_a_response_without_queries_lives_as_long_as_its_records() -> None:
    assert make().estimate_ms([], write_rate_hz=1.0, now_ms=NOW_MS) == 693


def test_a_query_that_falls_quiet_gets_its_long_life_back_without_a_write() -> None:
    estimator = make()
    now_ms = invalidated_after(estimator, "q", *[1_000] * 20)
    estimator.observe_read(["q"], now_ms=now_ms)
    estimates = [estimator.estimate_ms(["q"], write_rate_hz=0.0, now_ms=now_ms + 10**i) for i in range(9)]
    assert estimates[:4] == [693] * 4
    assert estimates == sorted(estimates)
    assert estimates[-1] == 3_600_000


def test_bounds_hold_and_a_lifetime_of_nothing_is_no_division_by_zero() -> None:
    estimator = make(ttl_min_ms=500, ttl_max_ms=2_000)
    invalidated_after(estimator, "short", 0, 0)
    invalidated_after(estimator, "long", 10**9)
    assert estimator.estimate_ms(["short"], write_rate_hz=0.0, now_ms=NOW_MS) == 500
    assert estimator.estimate_ms(["long"], write_rate_hz=0.0, now_ms=NOW_MS) == 2_000


def test_memory_is_bounded_and_the_query_read_longest_ago_goes_first() -> None:
    estimator = make(max_queries=3)
    for name in "abc":
        invalidated_after(estimator, name, 10_000)
    estimator.observe_read(["a"], now_ms=NOW_MS + 10_000)
    estimator.observe_read(["d"], now_ms=NOW_MS + 10_000)
    assert len(estimator) == 3
    assert estimator.estimate_ms(["b"], write_rate_hz=0.0, now_ms=NOW_MS + 10_000) == 3_600_000
    assert estimator.estimate_ms(["a"], write_rate_hz=0.0, now_ms=NOW_MS + 10_000) == int(LN2 * 10_000)


@pytest.mark.parametrize(
    "options",
    [{"ttl_min_ms": 0}, {"ttl_min_ms": 5, "ttl_max_ms": 4}, {"quantile": 0}, {"quantile": 1}, {"alpha": 1}],
)
def test_settings_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        make(**options)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["read", "watched", "invalidated", "asked"]),
            st.sampled_from("abc"),
            st.integers(-1_000, 10_000_000),
            st.floats(0, 1e6),
        )
    )
)
def test_an_estimate_is_within_its_bounds_after_any_history(history: list[tuple[str, str, int, float]]) -> None:
    """Clocks that go back, invalidations without reads, absurd rates: always a whole number of ms in [min, max]."""
    estimator = make(ttl_min_ms=100, ttl_max_ms=60_000)
    now_ms = NOW_MS
    for what, query_id, by_ms, rate_hz in history:
        now_ms += by_ms
        if what == "read":
            estimator.observe_read([query_id], now_ms=now_ms)
        elif what == "watched":
            estimator.observe_read([query_id], now_ms=now_ms, ttl_ms=int(rate_hz))
        elif what == "invalidated":
            estimator.observe_invalidation(query_id, now_ms=now_ms)
        ttl_ms = estimator.estimate_ms([query_id, "a"], write_rate_hz=rate_hz, now_ms=now_ms)
        assert isinstance(ttl_ms, int)
        assert 100 <= ttl_ms <= 60_000


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.floats(0.01, 0.98))
def test_more_writes_never_mean_a_longer_life_nor_a_larger_quantile_a_shorter(
    one_hz: float, more_hz: float, quantile: float
) -> None:
    def estimate(rate_hz: float, p: float) -> int:
        return make(quantile=p).estimate_ms(["q"], write_rate_hz=rate_hz, now_ms=NOW_MS)

    assert estimate(one_hz, quantile) >= estimate(one_hz + more_hz, quantile)
    assert estimate(one_hz, quantile) <= estimate(one_hz, quantile + 0.01)


class Replay:
    """One query read at random against Poisson writes, cached for what the estimator says."""

    def __init__(self, estimator: TtlEstimator, *, write_hz: float, read_hz: float, seed: int) -> None:
        self.estimator = estimator
        self.dice = random.Random(seed)
        self.write_hz, self.read_hz = write_hz, read_hz
        self.now_ms = float(NOW_MS)
        self.ttls_ms: list[int] = []
        self.changed_in_time = 0

    def run(self, fills: int) -> None:
        """Each fill: read and cache; then either a write comes while it is guarded, or it expires; then the next read."""
        for _ in range(fills):
            at_ms = int(self.now_ms)
            ttl_ms = self.estimator.estimate_ms(["q"], write_rate_hz=0.0, now_ms=at_ms)
            self.estimator.observe_read(["q"], now_ms=at_ms, ttl_ms=ttl_ms)
            self.ttls_ms.append(ttl_ms)
            written_ms = self.now_ms + self.dice.expovariate(self.write_hz) * 1_000
            if written_ms <= at_ms + ttl_ms:
                self.changed_in_time += 1
                self.estimator.observe_invalidation("q", now_ms=int(written_ms))
                self.now_ms = written_ms
            else:
                self.now_ms = at_ms + ttl_ms
            self.now_ms += self.dice.expovariate(self.read_hz) * 1_000


@pytest.mark.parametrize("read_hz", [0.02, 1.0, 50.0])
@pytest.mark.parametrize(("write_hz", "quantile"), [(0.1, 0.5), (2.0, 0.5), (0.1, 0.8), (0.1, 0.2)])
def test_estimates_converge_on_poisson_writes_however_often_the_result_is_read(
    write_hz: float, quantile: float, read_hz: float
) -> None:
    """The estimator starts from the longest TTL, without knowledge; the median estimate ends near -ln(1 - p) / λ.

    About a share p of the results change before they expire.
    """
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    replay = Replay(make(quantile=quantile), write_hz=write_hz, read_hz=read_hz, seed=seed)
    replay.run(200)
    replay.ttls_ms.clear()
    replay.changed_in_time = 0
    replay.run(4_000)
    expected_ms = -math.log(1 - quantile) / write_hz * 1_000
    median_ms = sorted(replay.ttls_ms)[len(replay.ttls_ms) // 2]
    assert median_ms == pytest.approx(expected_ms, rel=0.3)
    assert replay.changed_in_time / 4_000 == pytest.approx(quantile, abs=0.1)


def test_estimates_follow_a_rate_that_changes() -> None:
    """A hundred times as many writes, then a hundred times fewer: both are followed within a few dozen lifetimes."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    replay = Replay(make(), write_hz=0.1, read_hz=10.0, seed=seed)
    for write_hz in (0.1, 10.0, 0.1):
        replay.write_hz = write_hz
        replay.run(100)
        replay.ttls_ms.clear()
        replay.run(1_000)
        median_ms = sorted(replay.ttls_ms)[len(replay.ttls_ms) // 2]
        assert median_ms == pytest.approx(LN2 / write_hz * 1_000, rel=0.4)


def test_time_in_which_a_result_was_no_longer_guarded_does_not_count() -> None:
    """Withdrawn after 10 s of an hour, read again much later, changed 10 s after that: it was watched for 20 s."""
    estimator = TtlEstimator(ttl_min_ms=1, ttl_max_ms=10**9, quantile=0.5)
    estimator.observe_read(["q"], now_ms=NOW_MS, ttl_ms=3_600_000)
    estimator.observe_withdrawal("q", now_ms=NOW_MS + 10_000)
    estimator.observe_withdrawal("q", now_ms=NOW_MS + 500_000)
    estimator.observe_withdrawal("never read", now_ms=NOW_MS)
    estimator.observe_read(["q"], now_ms=NOW_MS + 1_000_000, ttl_ms=3_600_000)
    estimator.observe_invalidation("q", now_ms=NOW_MS + 1_010_000)
    assert estimator.estimate_ms(["q"], write_rate_hz=0, now_ms=NOW_MS + 1_010_000) == pytest.approx(
        20_000 * 0.693, rel=0.01
    )


def test_above_one_the_exponent_gives_more_to_what_changes_seldom() -> None:
    """Of two queries of one kind; with 1 each has its quantile."""
    given = {}
    for exponent in (1.0, 2.0):
        estimator = TtlEstimator(ttl_min_ms=1, ttl_max_ms=10**9, exponent=exponent)
        for _ in range(50):
            for query, rate_hz in (("seldom", 0.01), ("often", 1.0)):
                ttl_ms = estimator.estimate_ms([query], write_rate_hz=rate_hz, now_ms=0, kind="k")
                given[query, exponent] = ttl_ms
    assert given["seldom", 1.0] == pytest.approx(100 * given["often", 1.0], rel=0.01)
    assert given["seldom", 2.0] > 3 * given["seldom", 1.0]
    assert given["often", 2.0] < given["often", 1.0] / 3


def test_an_exponent_outside_its_bounds_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"exponent \(9\) must lie in 0.25..4"):
        TtlEstimator(ttl_min_ms=1, ttl_max_ms=10, exponent=9)
