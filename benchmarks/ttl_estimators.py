"""Lifetimes by each estimator, on each workload, through the simulator: hits in browsers, staleness, invalidations, false
positives.

Longer lifetimes mean more hits and more stale ones, so estimators are compared at equal staleness: each is run with several
of its parameters, and its hits are read off between the two points around that staleness. The oracle knows when everything
changes. Seeds are the same for all; the table has means. Run: python -m benchmarks.ttl_estimators [--requests 100000] [--seeds 5]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks import harness
from quaestor.simulation.comparison import compared, oracle
from quaestor.simulation.simulate import System, simulated, summed_up
from quaestor.simulation.workload import Mix, Workload, synthetic
from quaestor.ttl.parameters import TtlParameters, Tuning

Points = dict[str, dict[str, tuple[float, float]]]

COMMON: dict[str, Any] = {"rate_hz": 200.0, "results": 1_000, "clients": 20}
MIXES = (
    Mix(name="Zipf, 99 % reads", **COMMON),
    Mix(name="Zipf, 95 % reads (YCSB B)", **COMMON, reads=0.95),
    Mix(name="uniform, 99 % reads", rate_hz=200.0, results=200, clients=10, skew=0.0),
    Mix(name="bursts, 99 % reads", **COMMON, writes="bursts"),
    Mix(name="cycle, 99 % reads", **COMMON, writes="cycle", period_s=200.0),
)
ESTIMATORS: dict[str, Sequence[Tuning]] = {
    "lifetimes": [Tuning(quantile=one, ttl_min_ms=100) for one in (0.1, 0.3, 0.5, 0.7, 0.9)],
    "best static": [
        Tuning(estimator="static", static_ms=one, ttl_min_ms=100) for one in (300, 1_000, 3_000, 10_000, 60_000)
    ],
    "age": [Tuning(estimator="age", fraction=one, ttl_min_ms=100) for one in (0.05, 0.1, 0.2, 0.5, 1.0)],
    "dynamic": [Tuning(estimator="dynamic", quantile=one, ttl_min_ms=100) for one in (0.1, 0.3, 0.5, 0.7, 0.9)],
}
LEVELS = (0.5, 1.0, 1.5)
"""Staleness at which all are compared, as shares of what `lifetimes` has at the quantile 0.5."""


def at_staleness(points: Points, stale: float, figure: str) -> float | None:
    """A figure between the two points around this staleness; None if all are staler."""
    ordered = sorted((one["stale"][0], one[figure][0]) for one in points.values())
    if ordered[0][0] > stale:
        return None
    for (low, at_low), (high, at_high) in itertools.pairwise(ordered):
        if low <= stale <= high:
            return at_low + (at_high - at_low) * ((stale - low) / (high - low) if high > low else 0.0)
    return ordered[-1][1]


def measured(mix: Mix, *, seeds: int, system: System) -> dict[str, Any]:
    workloads: list[Workload] = [synthetic(mix, seed=seed) for seed in range(seeds)]
    known = summed_up([simulated(one, oracle(one, ttl_min_ms=100), system, seed=i) for i, one in enumerate(workloads)])
    points: dict[str, Points] = {}
    began = time.process_time()
    for name, tunings in ESTIMATORS.items():
        candidates = {describe(tuning): TtlParameters(default=tuning) for tuning in tunings}
        points[name] = compared(workloads, candidates, system)
    spent_s = time.process_time() - began
    middle = points["lifetimes"][describe(ESTIMATORS["lifetimes"][2])]["stale"][0]
    levels = [
        {
            "stale": middle * level,
            "fresh_hits": {name: at_staleness(one, middle * level, "browser_fresh") for name, one in points.items()},
            "hits": {name: at_staleness(one, middle * level, "browser") for name, one in points.items()},
        }
        for level in LEVELS
    ]
    runs = sum(map(len, ESTIMATORS.values())) * seeds
    return {
        "workload": mix.name, "oracle": known, "points": points, "levels": levels,
        "requests_per_cpu_s": mix.requests * runs / spent_s,
    }  # fmt: skip


def describe(tuning: Tuning) -> str:
    match tuning.estimator:
        case "static":
            return f"{tuning.static_ms / 1_000:g} s"
        case "age":
            return f"{tuning.fraction:g} of the age"
        case _:
            return f"quantile {tuning.quantile:g}"


def show(found: dict[str, Any]) -> None:
    known = found["oracle"]
    print(f"\n{found['workload']}: {found['requests_per_cpu_s']:,.0f} requests per CPU second")
    print(f"  oracle: fresh hits in browsers {known['browser_fresh'][0]:.3f}, stale {known['stale'][0]:.4f}")
    for name, points in found["points"].items():
        for what, one in points.items():
            print(
                f"  {name:12} {what:18} hits {one['browser'][0]:.3f} ± {one['browser'][1]:.3f}, "
                f"fresh {one['browser_fresh'][0]:.3f}, stale {one['stale'][0]:.4f}, purges {one['purges_hz'][0]:.1f}/s, "
                f"sketch {one['sketch_mean'][0]:.0f}, false positives {one['false_positives'][0]:.5f}, "
                f"p99 {one['p99_ms'][0]:.0f} ms"
            )
    for level in found["levels"]:
        shown = ", ".join(
            "-" if value is None else f"{name} {value:.3f} ({value / known['browser_fresh'][0]:.0%} of the oracle's)"
            for name, value in level["fresh_hits"].items()
        )
        print(f"  fresh hits at {level['stale']:.4f} stale: {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    system = System(delta_s=5.0)
    found = []
    for mix in MIXES:
        found.append(measured(replace(mix, requests=options.requests), seeds=options.seeds, system=system))
        show(found[-1])
    harness.save("ttl_estimators", {"requests": options.requests, "seeds": options.seeds, "workloads": found})


if __name__ == "__main__":
    main()
