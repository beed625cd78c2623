"""The simulator: the results of few events, computed by hand, and properties that hold for every seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.errors import ConfigurationError
from quaestor.simulation.comparison import compared, oracle, pareto, production
from quaestor.simulation.fitting import best, better, candidates
from quaestor.simulation.simulate import Figures, System, simulated, summed_up
from quaestor.simulation.workload import Mix, Workload, counted, recorded, synthetic
from quaestor.ttl.baselines import StaticTtl
from quaestor.ttl.parameters import TtlParameters, Tuning
from quaestor.ttl.trace_format import Changed, Filled, Served, Trace, Withdrawn

SMALL = Mix(requests=4_000, results=200, clients=20, rate_hz=50.0, reads=0.95)


def by_hand(reads: list[tuple[float, int]], writes: list[float]) -> Workload:
    """One result, asked for by these clients, changed then."""
    return Workload(
        name="by hand",
        results=1,
        clients=3,
        read_s=np.array([at_s for at_s, _ in reads]),
        read_of=np.zeros(len(reads), dtype=np.int32),
        read_by=np.array([client for _, client in reads], dtype=np.int32),
        write_s=np.array(writes, dtype=float),
        write_of=np.zeros(len(writes), dtype=np.int32),
        rates_hz=np.zeros(1),
        kinds=("k",),
    )


def counts(figures: Figures) -> list[int]:
    shares = (figures.browser, figures.cdn, figures.app, figures.database)
    return [round(share * figures.requests) for share in shares]


def test_the_answering_cache_follows_from_the_lifetimes() -> None:
    """First the database; then the client's own copy; another client by the CDN's; after 60 s the app gives the lifetime
    again."""
    workload = by_hand([(0, 0), (1, 0), (2, 2), (59, 0), (61, 0), (62, 0)], [])
    assert counts(simulated(workload, StaticTtl(60_000), System())) == [3, 1, 1, 1]


def test_after_a_change_a_client_asks_again_when_its_sketch_says_so_and_not_before() -> None:
    """Changed at 1 s: at 2 s the sketch of 0 s does not know, the answer is stale by 1 s; at 11 s it does. The next answer
    is fresh."""
    workload = by_hand([(0, 0), (2, 0), (11, 0), (12, 0)], [1.0])
    figures = simulated(workload, StaticTtl(60_000), System(delta_s=10))
    assert counts(figures) == [2, 0, 0, 2]
    assert figures.stale == 0.25
    assert figures.stale_max_s == 1.0
    assert figures.purges_hz * workload.length_s == pytest.approx(1)


def test_a_change_of_what_nobody_keeps_costs_no_purge() -> None:
    figures = simulated(by_hand([(0, 0), (70, 0)], [65.0]), StaticTtl(60_000), System())
    assert figures.purges_hz == 0
    assert figures.invalidations_hz * 70 == pytest.approx(1)
    assert figures.sketch_peak == 0


@pytest.mark.parametrize(("ahead_s", "own"), [(0.0, 2), (2.0, 1), (3.0, 0)])
def test_a_browser_that_counts_the_clock_late_uses_copies_for_so_much_less(ahead_s: float, own: int) -> None:
    """Lifetime of 3 s: the copy of 0 s answers at 0.5 and 2 s; taken to be 2 s ahead, only at 0.5 s; 3 s ahead, never."""
    workload = by_hand([(0, 0), (0.5, 0), (2, 0)], [])
    figures = simulated(workload, StaticTtl(3_000), System(ahead_s=ahead_s))
    assert counts(figures) == [own, 2 - own, 0, 1]


def test_without_browsers_and_edges_the_app_answers_everything() -> None:
    workload = by_hand([(0, 0), (1, 0), (2, 1)], [1.5])
    figures = simulated(workload, StaticTtl(60_000), System(browsers=False, edges=0))
    assert counts(figures) == [0, 0, 1, 2]


def test_requests_that_fill_the_caches_are_not_counted() -> None:
    """Asked for at 0 s, before it is counted: later answers come from there; the change at 30 s is counted."""
    workload = by_hand([(0, 0), (20, 0), (21, 2), (45, 0), (46, 1)], [30.0])
    figures = simulated(workload, StaticTtl(60_000), System(), counted_from_s=20.0)
    assert figures.requests == 4
    assert counts(figures) == [1, 1, 1, 1]
    assert figures.invalidations_hz * (workload.length_s - 20.0) == pytest.approx(1)
    whole = simulated(workload, StaticTtl(60_000), System())
    assert counts(whole) == [1, 1, 1, 2]


def test_counting_cannot_begin_after_the_last_read() -> None:
    with pytest.raises(ConfigurationError, match=r"nothing is read after counted_from_s \(3 s\)"):
        simulated(by_hand([(0, 0), (2, 0)], []), StaticTtl(60_000), System(), counted_from_s=3.0)


def test_an_answer_of_the_browser_takes_its_own_time() -> None:
    """A browser's own time lengthens only its own answers."""
    workload = by_hand([(0, 0), *((number / 10, 0) for number in range(1, 100))], [])
    free, own = (
        simulated(workload, StaticTtl(60_000), System(browser_ms=ms), seed=3) for ms in ((0.0, 0.0), (0.25, 0.0))
    )
    assert (free.p50_ms, own.p50_ms) == (0.0, 0.25)
    assert own.mean_ms - free.mean_ms == pytest.approx(0.25 * 0.99, rel=0.01)
    assert own.origin_ms == free.origin_ms


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), quantile=st.floats(0.05, 0.95), delta_s=st.sampled_from([1.0, 5.0, 60.0]))
def test_no_answer_is_staler_than_the_sketch_allows(seed: int, quantile: float, delta_s: float) -> None:
    """At most delta and the time until a change is known and purged; and everybody is answered by exactly one layer."""
    workload = synthetic(SMALL, seed=seed)
    system = System(delta_s=delta_s)
    figures = simulated(workload, production(TtlParameters(default=Tuning(quantile=quantile))), system)
    assert figures.stale_max_s <= delta_s + system.detection_s + system.purge_s + 1e-6
    assert figures.browser + figures.cdn + figures.app + figures.database == pytest.approx(1)
    assert figures.requests == len(workload.read_s)


def test_the_same_seed_gives_the_same_figures_and_another_one_others() -> None:
    first, again, other = (synthetic(SMALL, seed=seed) for seed in (1, 1, 2))
    figures = [simulated(workload, production(TtlParameters()), System()) for workload in (first, again, other)]
    assert figures[0] == figures[1] != figures[2]


def test_the_oracle_leaves_nothing_alive_to_be_purged_but_what_was_handed_out_while_a_change_came() -> None:
    workload = synthetic(SMALL, seed=3)
    known = simulated(workload, oracle(workload), System())
    blind = simulated(workload, StaticTtl(600_000), System())
    assert known.purges_hz < blind.purges_hz
    assert known.stale < blind.stale


def test_a_comparison_has_intervals_and_a_front_of_what_nothing_beats() -> None:
    workloads = [synthetic(SMALL, seed=seed) for seed in range(5)]
    candidates = {f"{quantile}": TtlParameters(default=Tuning(quantile=quantile)) for quantile in (0.2, 0.8)}
    figures = compared(workloads, candidates, System())
    mean, half = figures["0.2"]["browser"]
    assert 0 < half < mean < 1
    assert set(pareto(figures)) <= set(candidates)
    worse = {"a": {"origin_ms": (1.0, 0), "purges_hz": (1.0, 0), "stale": (1.0, 0)}}
    worse["b"] = {"origin_ms": (2.0, 0), "purges_hz": (2.0, 0), "stale": (1.0, 0)}
    assert pareto(worse) == ["a"]
    assert summed_up([simulated(workloads[0], StaticTtl(1), System())])["browser"][1] == 0.0


class Shown(NamedTuple):
    browser_fresh: float
    stale: float


def test_the_most_fresh_hits_within_the_bound_are_chosen_and_the_present_ones_of_equals() -> None:
    """If no candidate keeps the bound, the least stale one is chosen;
    the present parameters of any estimator are tried too.
    """
    figures = [Shown(0.2, 0.01), Shown(0.5, 0.02), Shown(0.5, 0.02), Shown(0.9, 0.3)]
    assert best(figures, 0.02) == 1
    assert best(figures, 0.001) == 0
    present = Tuning(estimator="static", ttl_max_ms=90_000)
    assert candidates(present)[0] == present
    assert {candidate.estimator for candidate in candidates(present)[1:]} == {"lifetimes"}
    assert {candidate.ttl_max_ms for candidate in candidates(present)} == {90_000}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (Shown(0.5, 0.01), False),
        (Shown(0.5, 0.015), False),
        (Shown(0.5, 0.005), True),
        (Shown(0.4, 0.0), False),
        (Shown(0.6, 0.02), True),
        (Shown(0.9, 0.03), False),
    ],
    ids=[
        "the same",
        "as many hits, more stale",
        "as many hits, less stale",
        "fewer hits, less stale than needed",
        "more hits within the bound",
        "above the bound",
    ],
)
def test_parameters_not_better_in_the_held_back_time_are_not_taken(after: Shown, expected: bool) -> None:
    assert better(after, Shown(0.5, 0.01), 0.02) is expected


def test_counts_in_windows_are_a_workload() -> None:
    """Each read and each change lies in its window and belongs to its result, none is lost, and all are in order."""
    columns = (
        np.array([9, -5, 9]),
        np.array([100, 100, 110]),
        np.array([10, 10, 10]),
        np.array([3, 2, 1]),
        np.array([0, 1, 2]),
    )
    results = counted("k", *columns, clients=4)
    assert (results.results, len(results.read_s), len(results.write_s)) == (2, 6, 3)
    assert all(0 <= at_s < 10 for at_s in results.read_s[:5])
    assert 10 <= results.read_s[5] < 20
    assert sorted(results.read_of.tolist()) == [0, 0, 1, 1, 1, 1]
    assert results.write_of.tolist() == [0, 1, 1]
    assert list(results.read_s) == sorted(results.read_s)
    assert results.kinds == ("k", "k")


def test_a_recorded_trace_is_a_workload() -> None:
    """Hits are spread over the second before they were counted; a query's change is one of every result made of it."""
    records = (
        Filled(1_000, "r1", ("q1",), 5_000, None, 0.5, "db.a"),
        Filled(1_500, "r2", ("q1", "q2"), 5_000, None, 0.1, "db.a db.b"),
        Served(3_000, "r1", 4),
        Served(3_000, "nobody knows", 4),
        Withdrawn(3_200, "q2"),
        Changed(4_000, "q1"),
    )
    workload = recorded(Trace(started_ms=0, share=1.0, full=False, ended=True, records=records), clients=5, seed=1)
    assert workload.read_of.tolist() == [0, 1, 0, 0, 0, 0]
    assert ((workload.read_s[2:] >= 2) & (workload.read_s[2:] <= 3)).all()
    assert workload.write_of.tolist() == [0, 1]
    assert workload.kinds == ("db.a", "db.a db.b")
    assert simulated(workload, production(TtlParameters()), System()).requests == 6
    with pytest.raises(ConfigurationError, match="nothing was read"):
        recorded(Trace(started_ms=0, share=1.0, full=False, ended=True, records=()), clients=5, seed=1)


@pytest.mark.parametrize(
    "wrong", [{"reads": 1.0}, {"results": 0}, {"writes": "none"}, {"rate_hz": -1.0}, {"known": 2.0}]
)
def test_a_mix_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Mix(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("writes", ["poisson", "bursts", "cycle"])
def test_workloads_have_the_share_of_reads_and_are_in_order(writes: str) -> None:
    workload = synthetic(Mix(requests=10_000, writes=writes, reads=0.9), seed=7)
    assert len(workload.read_s) == 9_000
    assert len(workload.write_s) == 1_000
    assert (np.diff(workload.read_s) >= 0).all()
    assert (np.diff(workload.write_s) >= 0).all()
