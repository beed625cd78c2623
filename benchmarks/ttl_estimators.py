"""Lifetimes by each estimator, on each workload, through the simulator: hits in browsers, staleness, invalidations, false
positives.

Longer lifetimes mean more hits and more stale ones, so estimators are compared at equal staleness. Each estimator runs with
several of its parameters. Its figure is its most hits at no more than that staleness, linearly between its runs. Beside them
stand the oracle, which knows when everything changes, and the bound of what can be reached without that (`ttl_bound`). Seeds
are the same for all; each figure is a mean with half of its 95 % confidence interval.
Run: python -m benchmarks.ttl_estimators [--requests 100000] [--seeds 5] [--only NAME]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks import harness
from benchmarks.ttl_bound import bound
from quaestor.simulation.comparison import oracle, production
from quaestor.simulation.simulate import Figures, System, interval, simulated, summed_up
from quaestor.simulation.workload import Mix, Workload, synthetic
from quaestor.ttl.parameters import TtlParameters, Tuning

Runs = dict[str, list[Figures]]
Curve = list[tuple[float, float]]

TTL_MIN_MS = 100
COMMON: dict[str, Any] = {"rate_hz": 200.0, "results": 1_000, "clients": 20}
MIXES = (
    Mix(name="Zipf, 99 % reads", **COMMON),
    Mix(name="Zipf, 95 % reads (YCSB B)", **COMMON, reads=0.95),
    Mix(name="uniform, 99 % reads", rate_hz=200.0, results=200, clients=10, skew=0.0),
    Mix(name="bursts, 99 % reads", **COMMON, writes="bursts"),
    Mix(name="cycle, 99 % reads", **COMMON, writes="cycle", period_s=200.0),
)
ESTIMATORS: dict[str, Sequence[Tuning]] = {
    "lifetimes": [
        Tuning(quantile=quantile, exponent=exponent, ttl_min_ms=TTL_MIN_MS)
        for exponent in (1.0, 1.5, 2.0)
        for quantile in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    ],
    "best static": [
        Tuning(estimator="static", static_ms=static_ms, ttl_min_ms=TTL_MIN_MS)
        for static_ms in (300, 1_000, 3_000, 10_000, 60_000, 300_000)
    ],
    "age": [
        Tuning(estimator="age", fraction=fraction, ttl_min_ms=TTL_MIN_MS) for fraction in (0.05, 0.1, 0.2, 0.5, 1.0)
    ],
    "dynamic": [
        Tuning(estimator="dynamic", quantile=quantile, ttl_min_ms=TTL_MIN_MS)
        for quantile in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9)
    ],
}
LEVELS = (0.25, 0.5, 1.0)
"""Staleness at which all are compared, as shares of what `lifetimes` has with the default parameters."""


def at_staleness(curve: Curve, stale: float) -> float | None:
    """The most hits at no more than this staleness; None if all are staler."""
    best: tuple[float, float] | None = None
    for at, hits in sorted(curve):
        if at > stale:
            if best is not None and hits > best[1]:
                return best[1] + (hits - best[1]) * (stale - best[0]) / (at - best[0])
            if best is not None:
                continue
            return None
        if best is None or hits > best[1]:
            best = at, hits
    return None if best is None else best[1]


def level(curves: dict[str, list[Curve]], stale: float) -> dict[str, tuple[float, float] | None]:
    """Fresh hits of each at a staleness, by their curves for each seed; None where one of them is staler throughout."""
    levels: dict[str, tuple[float, float] | None] = {}
    for name, seeds in curves.items():
        values = [at_staleness(curve, stale) for curve in seeds]
        known = [value for value in values if value is not None]
        levels[name] = interval(known) if len(known) == len(values) else None
    return levels


def measured(mix: Mix, *, seeds: int, system: System) -> dict[str, Any]:
    workloads: list[Workload] = [synthetic(mix, seed=seed) for seed in range(seeds)]
    known = [
        simulated(workload, oracle(workload, ttl_min_ms=TTL_MIN_MS), system, seed=i)
        for i, workload in enumerate(workloads)
    ]
    runs: dict[str, Runs] = {}
    began_s = time.process_time()
    for name, tunings in ESTIMATORS.items():
        runs[name] = {
            describe(tuning): [
                simulated(workload, production(TtlParameters(default=tuning)), system, seed=i)
                for i, workload in enumerate(workloads)
            ]
            for tuning in tunings
        }
    spent_s = time.process_time() - began_s
    curves: dict[str, list[Curve]] = {
        name: [[(figures[i].stale, figures[i].browser_fresh) for figures in by_tuning.values()] for i in range(seeds)]
        for name, by_tuning in runs.items()
    }
    curves["bound"] = bound(mix, workloads, system, ttl_min_ms=TTL_MIN_MS)
    curves["oracle"] = [[(figures.stale, figures.browser_fresh)] for figures in known]
    default = summed_up(runs["lifetimes"][describe(Tuning())])["stale"][0]
    return {
        "workload": mix.name,
        "points": {name: {what: summed_up(row) for what, row in each.items()} for name, each in runs.items()},
        "oracle": summed_up(known),
        "levels": [{"stale": default * share, "fresh_hits": level(curves, default * share)} for share in LEVELS],
        "requests_per_cpu_s": mix.requests * seeds * sum(map(len, ESTIMATORS.values())) / spent_s,
    }


def describe(tuning: Tuning) -> str:
    match tuning.estimator:
        case "static":
            return f"{tuning.static_ms / 1_000:g} s"
        case "age":
            return f"{tuning.fraction:g} of the age"
        case "dynamic":
            return f"quantile {tuning.quantile:g}"
        case _:
            return f"quantile {tuning.quantile:g}, exponent {tuning.exponent:g}"


def show(result: dict[str, Any]) -> None:
    known = result["oracle"]
    print(f"\n{result['workload']}: {result['requests_per_cpu_s']:,.0f} requests per CPU second")
    print(f"  oracle: fresh hits in browsers {known['browser_fresh'][0]:.3f}, stale {known['stale'][0]:.4f}")
    for name, points in result["points"].items():
        for what, figures in points.items():
            print(
                f"  {name:12} {what:26} hits {figures['browser'][0]:.3f} ± {figures['browser'][1]:.3f}, "
                f"fresh {figures['browser_fresh'][0]:.3f} ± {figures['browser_fresh'][1]:.3f}, "
                f"stale {figures['stale'][0]:.4f} ± {figures['stale'][1]:.4f}, "
                f"invalidations {figures['invalidations_hz'][0]:.2f}/s, purges {figures['purges_hz'][0]:.2f}/s, "
                f"sketch {figures['sketch_mean'][0]:.0f}, false positives {figures['false_positives'][0]:.5f}"
            )
    for row in result["levels"]:
        best = row["fresh_hits"]["bound"]
        shown = ", ".join(
            f"{name} -" if value is None else f"{name} {value[0]:.3f} ± {value[1]:.3f}{of(value, best)}"
            for name, value in row["fresh_hits"].items()
        )
        print(f"  fresh hits at {row['stale']:.4f} stale (of the bound): {shown}")


def of(value: tuple[float, float], best: tuple[float, float] | None) -> str:
    return "" if best is None else f" ({value[0] / best[0]:.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="workloads whose names contain this; nothing is saved then")
    options = parser.parse_args()
    system = System(delta_s=5.0)
    results = []
    for mix in MIXES:
        if options.only in mix.name:
            results.append(measured(replace(mix, requests=options.requests), seeds=options.seeds, system=system))
            show(results[-1])
    if not options.only:
        harness.save("ttl_estimators", {"requests": options.requests, "seeds": options.seeds, "workloads": results})


if __name__ == "__main__":
    main()
