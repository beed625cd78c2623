"""Benchmark of channels at a small size: it measures every use case, and its own count of the results agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bad_channels import measured
from benchmarks.bad_scaling import Model, Point, calculated, fitted
from benchmarks.bad_vs_good import good
from benchmarks.workloads.police import USE_CASES, Setup
from quaestor.continuous.executors.duckdb import DuckDbExecutor


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("use_case", sorted(USE_CASES))
def test_a_small_experiment_has_every_figure(tmp_path: Path, use_case: str, grouped: bool) -> None:
    setup = Setup(use_case=use_case, subscribers=2_000, areas=20, rate=400, schools=40, grouped=grouped)
    with DuckDbExecutor(threads=1) as executor:
        result = measured(setup, executor, period_s=1.0, runs=2, folder=tmp_path)
    assert result["areas"] == 20
    assert all(run["tweets"] > 0 for run in result["runs"])
    assert setup.has_officers or any(run["results"] > 0 for run in result["runs"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("store", ["mongo", "lake"])
def test_good_delivers_the_same_number_of_results(store: str, cached: bool) -> None:
    """GOOD's own count is compared in each run; its breakdown has the stages of figure 45."""
    setup = Setup(use_case="local", subscribers=2_000, areas=20, rate=400, grouped=False)
    result = good(setup, store, cached=cached, period_s=2.0, runs=1)
    assert result["results"] > 0
    stages = {"load_records_s", "join_s", "persist_s", "total_s"}
    assert stages | (set() if cached else {"load_subscriptions_s"}) <= set(result["staged"])


def test_the_model_of_more_workers_is_fitted_and_extrapolated() -> None:
    """Points of a known model give its constants back; what every worker does is not divided."""
    model = Model(fixed_s=0.5, tweet_s=0.002, subscriber_s=0.0001)
    points = [
        Point(
            workers=1,
            subscribers=subscribers,
            tweets=tweets,
            total_s=model.run_s(subscribers=subscribers, tweets=tweets, workers=1),
        )
        for subscribers in (5_000, 20_000)
        for tweets in (60, 240)
    ]
    known = fitted(points)
    assert known.off(points) == [1.0] * 4
    nodes = calculated(known)["figure_46"]["nodes"]
    assert nodes[1] == pytest.approx(0.5 + 0.96 + 14, abs=0.01)
    assert nodes[16] == pytest.approx(0.5 + 0.96 + 14 / 16, abs=0.01)
    assert calculated(known)["figure_47"]["nodes"][16] == pytest.approx((30 - 1.46) * 160_000, rel=1e-3)
