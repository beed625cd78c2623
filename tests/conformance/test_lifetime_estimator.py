"""Lifetime estimators of every implementation: lifetimes within bounds, and equal for equal pasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.ports import LifetimeEstimator
from quaestor.ttl import TtlEstimator
from quaestor.ttl.baselines import AgeTtl, DynamicTtl, OracleTtl, StaticTtl
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.constrained import Budgets, ConstrainedEstimator
from quaestor.ttl.daily_cycle import DailyCycle
from quaestor.ttl.parameters import TtlParameters, Tuning
from tests.hand_driven import FixedEstimator

MIN_MS, MAX_MS = 1_000, 3_600_000
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Kind:
    """An implementation, and how to make one with these bounds.

    timeless: nothing but what was observed counts: not the time of day, not the age, not what is still to come.
    """

    name: str
    make: Callable[[], LifetimeEstimator]
    timeless: bool = True


def constrained() -> LifetimeEstimator:
    return ConstrainedEstimator(
        TtlEstimator(ttl_min_ms=MIN_MS, ttl_max_ms=MAX_MS),
        budgets=Budgets(false_positives=0.1, invalidations_hz=0.1),
        ttl_min_ms=MIN_MS,
        false_positive_rate=lambda keys: keys / (keys + 10),
    )


def chosen() -> LifetimeEstimator:
    kinds = {"k1": Tuning(estimator="dynamic"), "k2": Tuning(quantile=0.9, false_positives=0.01)}
    return ChosenEstimators(TtlParameters(kinds=kinds), false_positive_rate=lambda keys: keys / 1_000)


def daily() -> LifetimeEstimator:
    return TtlEstimator(ttl_min_ms=MIN_MS, ttl_max_ms=MAX_MS, cycle=DailyCycle(period_ms=10_000, parts=4))


def oracle() -> LifetimeEstimator:
    return OracleTtl(
        lambda query_id, now_ms: None if query_id == "q1" else now_ms // 10_000 * 10_000 + 10_000,
        ttl_min_ms=MIN_MS,
        ttl_max_ms=MAX_MS,
    )


KINDS = (
    Kind("estimated", lambda: TtlEstimator(ttl_min_ms=MIN_MS, ttl_max_ms=MAX_MS)),
    Kind("without memory", lambda: TtlEstimator(ttl_min_ms=MIN_MS, ttl_max_ms=MAX_MS, alpha=0.0, quantile=0.99)),
    Kind("of few queries", lambda: TtlEstimator(ttl_min_ms=MIN_MS, ttl_max_ms=MAX_MS, max_queries=1)),
    Kind("fixed", FixedEstimator),
    Kind("constrained", constrained),
    Kind("chosen", chosen),
    Kind("daily", daily, timeless=False),
    Kind("static", lambda: StaticTtl(60_000)),
    Kind("age", lambda: AgeTtl(fraction=0.1, ttl_min_ms=MIN_MS, ttl_max_ms=MAX_MS), timeless=False),
    Kind("dynamic", lambda: DynamicTtl(quantile=0.5, ttl_min_ms=MIN_MS, ttl_max_ms=MAX_MS)),
    Kind("oracle", oracle, timeless=False),
)
every_timeless_kind = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.timeless], ids=[kind.name for kind in KINDS if kind.timeless]
)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])

QUERIES = st.sampled_from(["q1", "q2", "q3"])
RATES_HZ = st.floats(0, 1e9)
TIMES = st.integers(NOW_MS - 10**7, NOW_MS + 10**7)
"""In any order: clocks are set back, and reports come late."""
TTLS = st.none() | st.integers(0, 10**8)
OBSERVATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.lists(QUERIES, max_size=3), TIMES, TTLS, TTLS, st.sampled_from(["", "k1", "k2"])),
        st.tuples(st.just("invalidation"), QUERIES, TIMES),
        st.tuples(st.just("withdrawal"), QUERIES, TIMES),
    ),
    max_size=30,
)


def observe(estimator: LifetimeEstimator, observations: list[tuple[object, ...]]) -> None:
    for what, *said in observations:
        match what, said:
            case "read", [list() as queries, int() as now_ms, ttl_ms, given_ms, str() as name]:
                assert ttl_ms is None or isinstance(ttl_ms, int)
                assert given_ms is None or isinstance(given_ms, int)
                estimator.observe_read(queries, now_ms=now_ms, ttl_ms=ttl_ms, given_ms=given_ms, kind=name)
            case "invalidation", [str() as query, int() as now_ms]:
                estimator.observe_invalidation(query, now_ms=now_ms)
            case "withdrawal", [str() as query, int() as now_ms]:
                estimator.observe_withdrawal(query, now_ms=now_ms)


@every_kind
@given(observations=OBSERVATIONS, queries=st.lists(QUERIES, max_size=3), rate_hz=RATES_HZ, now_ms=TIMES)
def test_an_estimate_lies_within_the_bounds_after_any_observations(
    kind: Kind, observations: list[tuple[object, ...]], queries: list[str], rate_hz: float, now_ms: int
) -> None:
    """Observations in any order raise nothing and keep the estimate within the bounds."""
    estimator = kind.make()
    observe(estimator, observations)
    ttl_ms = estimator.estimate_ms(queries, write_rate_hz=rate_hz, now_ms=now_ms)
    assert isinstance(ttl_ms, int)
    assert MIN_MS <= ttl_ms <= MAX_MS


@every_kind
@given(observations=OBSERVATIONS, queries=st.lists(QUERIES, min_size=1, max_size=3), rate_hz=RATES_HZ, now_ms=TIMES)
def test_an_estimate_depends_on_what_was_observed_alone_and_changes_nothing(
    kind: Kind, observations: list[tuple[object, ...]], queries: list[str], rate_hz: float, now_ms: int
) -> None:
    """No clock, no dice; asking in between makes no difference."""
    questioned, other = kind.make(), kind.make()
    for observation in observations:
        questioned.estimate_ms(queries, write_rate_hz=rate_hz, now_ms=now_ms)
        observe(questioned, [observation])
        observe(other, [observation])
    expected = other.estimate_ms(queries, write_rate_hz=rate_hz, now_ms=now_ms)
    assert questioned.estimate_ms(queries, write_rate_hz=rate_hz, now_ms=now_ms) == expected
    assert questioned.estimate_ms(queries, write_rate_hz=rate_hz, now_ms=now_ms) == expected


@every_timeless_kind
@given(
    observations=OBSERVATIONS, query=QUERIES, watched_ms=st.integers(0, 10**6), later_ms=st.integers(0, 10**8),
    rate_hz=RATES_HZ,
)  # fmt: skip
def test_time_after_a_withdrawal_does_not_lengthen_estimates(
    kind: Kind, observations: list[tuple[object, ...]], query: str, watched_ms: int, later_ms: int, rate_hz: float
) -> None:
    """No process watches a query after its withdrawal, so silence after that is no sign of a long life."""
    estimator, now_ms = kind.make(), NOW_MS + 10**8
    observe(estimator, observations)
    estimator.observe_read([query], now_ms=now_ms)
    now_ms += watched_ms
    estimator.observe_withdrawal(query, now_ms=now_ms)
    at_once = estimator.estimate_ms([query], write_rate_hz=rate_hz, now_ms=now_ms)
    assert estimator.estimate_ms([query], write_rate_hz=rate_hz, now_ms=now_ms + later_ms) == at_once


@every_kind
def test_a_withdrawal_of_what_was_never_read_teaches_nothing(kind: Kind) -> None:
    estimator = kind.make()
    before = estimator.estimate_ms(["q1"], write_rate_hz=0.01, now_ms=NOW_MS)
    estimator.observe_withdrawal("q1", now_ms=NOW_MS)
    assert estimator.estimate_ms(["q1"], write_rate_hz=0.01, now_ms=NOW_MS) == before


@every_kind
@given(slow_hz=RATES_HZ, fast_hz=RATES_HZ)
def test_queries_written_more_often_do_not_live_longer(kind: Kind, slow_hz: float, fast_hz: float) -> None:
    estimator = kind.make()
    slow_hz, fast_hz = sorted((slow_hz, fast_hz))
    slow_ms = estimator.estimate_ms(["q1"], write_rate_hz=slow_hz, now_ms=NOW_MS)
    assert estimator.estimate_ms(["q1"], write_rate_hz=fast_hz, now_ms=NOW_MS) <= slow_ms


@every_kind
@given(observations=OBSERVATIONS, now_ms=TIMES, rate_hz=RATES_HZ)
def test_a_response_lives_no_longer_than_the_shortest_lived_of_its_queries(
    kind: Kind, observations: list[tuple[object, ...]], now_ms: int, rate_hz: float
) -> None:
    """A response changes with the first of its queries, so it lives no longer than the shortest-lived query."""
    estimator = kind.make()
    observe(estimator, observations)
    alone = [estimator.estimate_ms([query], write_rate_hz=0.0, now_ms=now_ms) for query in ("q1", "q2")]
    assert estimator.estimate_ms(["q1", "q2"], write_rate_hz=0.0, now_ms=now_ms) <= min(alone)
