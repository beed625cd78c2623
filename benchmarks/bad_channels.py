"""Channels: the use cases of the paper on Big Active Data, while another process ingests.

Each figure states the number of areas A: a run has subscribers x hateful tweets / A results of single subscribers, so A decides
everything. Use cases: `local` and `schools` by area code; `nearby`, `unseen` and `active` by the places of officers, each of whom
is a subscriber. A third of the officers move every ten seconds.

Figures: seconds of each stage of a run (load records, load subscriptions, join, encode, persist, total), results, bytes, memory,
and seconds that ingestion lags. `within` counts the runs that ended within the period. `start` is the time in which a new process
loads and orders the subscriptions. The number of results of each run is compared with a count by another path.

`--search` finds the largest number of subscribers whose runs all end within the period, by halving.

Result: benchmarks/results/bad_channels_<use case>_<subscribers>_<areas>_<rate>_<grouped or individual>.json.
Run: python -m benchmarks.bad_channels --use-case local --subscribers 50000000 --areas 50000 --rate 800 --individual --keep
(and without --individual for --areas 300, 1000, 50000)
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks import harness
from benchmarks.workloads.police import USE_CASES, Ingestion, Setup, fill
from quaestor.channels.datasets import Dataset
from quaestor.channels.runs.results import Results
from quaestor.channels.runs.run import Runner, RunOutcome
from quaestor.channels.subscriptions import dataset_name
from quaestor.continuous.executors.choice import executor_of
from quaestor.continuous.executors.executor import Executor
from quaestor.tables.catalogue import Catalogue

_STAGES: Final = {
    "load": "load_records_s",
    "subscriptions": "load_subscriptions_s",
    "execute": "join_s",
    "encode": "encode_s",
    "publish": "persist_s",
}


def measured(
    setup: Setup, executor: Executor, *, period_s: float, runs: int, folder: Path | None = None
) -> dict[str, Any]:
    """Return the figures of one experiment.

    runs: measured ones, after one that is not measured.
    folder: empty or missing; holds the tables, and is deleted.
    """
    root = Path(tempfile.mkdtemp(prefix="quaestor-bad-", dir=folder))
    try:
        catalogue = Catalogue(root)
        began_s = time.perf_counter()
        channel = fill(catalogue, setup)
        filled_s = time.perf_counter() - began_s
        runner = Runner(catalogue, executor)
        with Ingestion(root, setup) as ingestion:
            ingestion.wait_for_more(0)
            began_s = time.perf_counter()
            runner.run(channel, _now_us())
            start_s = time.perf_counter() - began_s
            figures, lags, due_s = [], [], time.monotonic()
            for _ in range(runs):
                batches = ingestion.batches
                due_s = max(due_s + period_s, time.monotonic())
                time.sleep(max(0.0, due_s - time.monotonic()))
                ingestion.wait_for_more(batches + 1)
                began_s = time.perf_counter()
                outcome = runner.run(channel, _now_us())
                total_s = time.perf_counter() - began_s
                figures.append(_figure(setup, catalogue, outcome, total_s))
                lags.append(round(ingestion.lag_s, 3))
        table = Results(catalogue, "c").table.snapshot()
        return {
            "areas": setup.areas,
            "period_s": period_s,
            "fill_s": round(filled_s, 2),
            "start_s": round(start_s, 2),
            "runs": figures,
            "median": {name: round(statistics.median(run[name] for run in figures), 3) for name in figures[0]},
            "within": sum(run["total_s"] <= period_s for run in figures),
            "ingestion_lag_s": max(lags),
            "plan": list(outcome.reasons),
            "subscription_bytes": _bytes(catalogue.open(dataset_name("c")).snapshot()),
            "result_bytes": _bytes(table),
            "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
    finally:
        shutil.rmtree(root)


def largest(setup: Setup, executor: Executor, *, period_s: float, runs: int, folder: Path | None) -> dict[str, Any]:
    """Return the largest tried number of subscribers whose runs all end within the period, and what was tried."""
    tried: dict[int, bool] = {}
    low, high, subscribers = 0, 0, setup.subscribers
    while not high or high > 1.1 * low:
        own = Setup(**{name: getattr(setup, name) for name in setup.__slots__} | {"subscribers": subscribers})
        figure = measured(own, executor, period_s=period_s, runs=runs, folder=folder)
        tried[subscribers] = figure["within"] == runs and figure["ingestion_lag_s"] < period_s
        print(subscribers, figure["median"], tried[subscribers], flush=True)
        low, high = (subscribers, high) if tried[subscribers] else (low, subscribers)
        subscribers = (low + high) // 2 if high else 2 * low
        if high and high <= 1_000:
            break
    return {"areas": setup.areas, "period_s": period_s, "runs": runs, "largest": low, "tried": tried}


def _figure(setup: Setup, catalogue: Catalogue, outcome: RunOutcome, total_s: float) -> dict[str, Any]:
    figure: dict[str, Any] = {name: round(outcome.seconds[stage], 3) for stage, name in _STAGES.items()}
    figure |= {"total_s": round(total_s, 3), "results": outcome.rows}
    table = Dataset.open(catalogue, "Tweets").partitions[0]
    new = table.scan(table.snapshot(), outcome.previous["Tweets"][0], outcome.current["Tweets"][0])
    figure |= {"tweets": new.num_rows}
    if not setup.has_officers:
        expected = sum(map(_targets(setup), new.filter(new.column("hateful_flag")).column("area_code").to_pylist()))
        if expected != outcome.rows:
            raise RuntimeError(f"a run has {outcome.rows} results, and {expected} were expected")
    return figure


def _targets(setup: Setup) -> Any:
    """Return a function of an area: the number of its subscribers, or of its groups."""

    def targets(area: int) -> int:
        subscribers = len(range(area, setup.subscribers, setup.areas))
        return min(subscribers, setup.brokers) if setup.grouped else subscribers

    return targets


def _bytes(snapshot: Any) -> int:
    return sum(file.bytes for file in snapshot.files.values())


def _now_us() -> int:
    return time.time_ns() // 1_000


def main() -> None:
    """Read the arguments, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--use-case", choices=tuple(USE_CASES), default="local")
    parser.add_argument("--subscribers", type=int, default=100_000)
    parser.add_argument("--areas", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=800, help="tweets a second")
    parser.add_argument("--brokers", type=int, default=10)
    parser.add_argument("--schools", type=int, default=100_000)
    parser.add_argument("--individual", action="store_true", help="a result for each subscriber, not for each group")
    parser.add_argument("--period", type=float, default=10.0, help="seconds")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--executor", choices=("duckdb", "spark"), default="duckdb")
    parser.add_argument("--search", action="store_true", help="find the largest number of subscribers")
    parser.add_argument("--folder", type=Path, help="place of the tables; by default a temporary folder")
    parser.add_argument("--keep", action="store_true", help="write the result to benchmarks/results")
    given = parser.parse_args()
    setup = Setup(
        use_case=given.use_case,
        subscribers=given.subscribers,
        areas=given.areas,
        rate=given.rate,
        brokers=given.brokers,
        schools=given.schools,
        grouped=not given.individual,
    )
    executor = executor_of(given.executor, "local[2]")
    measure = largest if given.search else measured
    result = measure(setup, executor, period_s=given.period, runs=given.runs, folder=given.folder)
    executor.close()
    kind = "individual" if given.individual else "grouped"
    name = f"bad_channels_{given.use_case}_{given.subscribers}_{given.areas}_{given.rate}_{kind}"
    setting = {name: getattr(setup, name) for name in setup.__slots__} | {"executor": given.executor}
    harness.report(name + ("_search" if given.search else ""), {"setup": setting} | result, keep=given.keep)


if __name__ == "__main__":
    main()
