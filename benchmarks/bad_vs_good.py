"""Channels beside GOOD, the glued alternative of the paper: NewLocalHatefulTweets with a result for each subscriber.

GOOD: a Redis Stream in Kafka's place, a plain Spark job for each run, and MongoDB (benchmarks/setups/good.py). GOOD loads the
subscriptions in each run, as in the paper. `lake` is GOOD-Lake: Delta tables in MongoDB's place. The variants `cached` keep the
subscriptions in Spark, and then see no new subscriber. All systems store all tweets and results, and ingest while they run.
`staged` runs end each stage before the next, for the breakdown of figure 45; `total_s` of the others is compared. A, the number
of areas, is in every figure.

No connector of the JVM for Kafka, MongoDB, Delta or Iceberg ships with PySpark, and the package registries have none. GOOD's
readers are therefore Python data sources with Arrow batches, projection and parallel cursors. A ratio holds for these only.
GOOD-Lake's tables are written by the library deltalake, and their files are read by Spark itself.

Result: benchmarks/results/bad_vs_good_<subscribers>_<areas>_<rate>.json.
Run: python -m benchmarks.bad_vs_good --subscribers 150000 --areas 1000 --rate 80 --keep
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks import harness
from benchmarks.bad_channels import measured
from benchmarks.setups.good import Good, ingestion
from benchmarks.setups.good_stores import DeltaTables, MongoTables, Tables
from benchmarks.workloads.police import Setup
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.testing.servers import mongo_url, redis_url

VARIANTS: Final = (
    ("good", "mongo", False),
    ("good_cached", "mongo", True),
    ("good_lake", "lake", False),
    ("good_lake_cached", "lake", True),
)
NOTE: Final = (
    "GOOD reads MongoDB and the stream by Python data sources: no connectors of the JVM are to be had, so a ratio holds for "
    "these readers only"
)


@contextmanager
def _tables(name: str) -> Iterator[Tables]:
    if name == "lake":
        with TemporaryDirectory(prefix="good-lake-") as folder:
            yield DeltaTables(Path(folder))
    else:
        with mongo_url() as url:
            yield MongoTables(url)


def good(setup: Setup, store: str = "mongo", *, cached: bool, period_s: float, runs: int) -> dict[str, Any]:
    """Return the figures of GOOD.

    store: `mongo`, or `lake` for Delta tables.
    runs: of each form, staged and not, after one that is not measured.
    """
    with _tables(store) as tables, redis_url() as stream:
        system = Good(setup, tables, stream, cached=cached)
        try:
            began_s = time.perf_counter()
            system.fill()
            filled_s = time.perf_counter() - began_s
            with ingestion(setup, tables, stream):
                system.wait_for_tweets()
                system.run(0, staged=False)
                staged: list[dict[str, float]] = []
                whole: list[dict[str, float]] = []
                due_s = time.monotonic()
                for number in range(1, 2 * runs + 1):
                    due_s = max(due_s + period_s, time.monotonic())
                    time.sleep(max(0.0, due_s - time.monotonic()))
                    system.wait_for_tweets()
                    is_staged = number % 2 == 0
                    (staged if is_staged else whole).append(system.run(number, staged=is_staged))
        finally:
            system.close()
    return {
        "fill_s": round(filled_s, 2),
        "staged": _medians(staged),
        "total_s": _medians(whole)["total_s"],
        "results": _medians(whole)["results"],
        "within": sum(run["total_s"] <= period_s for run in whole),
    }


def compared(setup: Setup, *, period_s: float, runs: int) -> dict[str, Any]:
    """Return the figures of channels and of all variants of GOOD, and the ratios of the times of a run."""
    with DuckDbExecutor(threads=2) as executor:
        channels = measured(setup, executor, period_s=period_s, runs=runs)
    result: dict[str, Any] = {"areas": setup.areas, "period_s": period_s, "note": NOTE, "channels": channels}
    for name, store, cached in VARIANTS:
        result[name] = good(setup, store, cached=cached, period_s=period_s, runs=runs)
        result[f"{name}_to_channels"] = round(result[name]["total_s"] / channels["median"]["total_s"], 2)
    return result


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}


def main() -> None:
    """Read the arguments, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--subscribers", type=int, default=150_000)
    parser.add_argument("--areas", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=80, help="tweets a second")
    parser.add_argument("--brokers", type=int, default=10)
    parser.add_argument("--period", type=float, default=10.0, help="seconds")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--keep", action="store_true", help="write the result to benchmarks/results")
    given = parser.parse_args()
    setup = Setup(
        use_case="local",
        subscribers=given.subscribers,
        areas=given.areas,
        rate=given.rate,
        brokers=given.brokers,
        grouped=False,
    )
    result = compared(setup, period_s=given.period, runs=given.runs)
    result = {"setup": {name: getattr(setup, name) for name in setup.__slots__}} | result
    harness.report(f"bad_vs_good_{given.subscribers}_{given.areas}_{given.rate}", result, keep=given.keep)


if __name__ == "__main__":
    main()
