"""Benchmark of channels at a small size: it measures every use case, and its own count of the results agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bad_channels import measured
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
def test_good_delivers_the_same_number_of_results(cached: bool) -> None:
    """GOOD's own count is compared in each run; its breakdown has the stages of figure 45."""
    setup = Setup(use_case="local", subscribers=2_000, areas=20, rate=400, grouped=False)
    result = good(setup, cached=cached, period_s=2.0, runs=1)
    assert result["results"] > 0
    stages = {"load_records_s", "join_s", "persist_s", "total_s"}
    assert stages | (set() if cached else {"load_subscriptions_s"}) <= set(result["staged"])
