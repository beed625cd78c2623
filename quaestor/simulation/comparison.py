"""Comparison of parameters on the same workloads, and the candidates that no other beats in every respect: plain data for
tables and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from quaestor.cache_sketch.sizing import DEFAULT
from quaestor.ports import LifetimeEstimator
from quaestor.simulation.simulate import System, simulated, summed_up
from quaestor.simulation.workload import Workload
from quaestor.ttl.baselines import OracleTtl
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.parameters import TtlParameters

COSTS = ("origin_ms", "purges_hz", "stale")
"""Figures of which less is better: the work of the origin, the rate of purges, staleness."""


def production(parameters: TtlParameters) -> LifetimeEstimator:
    """Estimator that an app with these parameters runs."""
    return ChosenEstimators(parameters, false_positive_rate=DEFAULT.false_positive_rate)


def oracle(workload: Workload, *, ttl_min_ms: int = 1, ttl_max_ms: int = 3_600_000) -> OracleTtl:
    """Estimator that knows this workload's changes."""
    order = np.argsort(workload.write_of, kind="stable")
    of, at_s = workload.write_of[order], workload.write_s[order]
    first = np.searchsorted(of, np.arange(workload.results + 1))

    def next_change_ms(result: str, now_ms: int) -> int | None:
        number = int(result)
        times_s = at_s[first[number] : first[number + 1]]
        place = int(np.searchsorted(times_s, (now_ms + 1) / 1_000))
        return int(times_s[place] * 1_000) if place < len(times_s) else None

    return OracleTtl(next_change_ms, ttl_min_ms=ttl_min_ms, ttl_max_ms=ttl_max_ms)


def compared(
    workloads: Sequence[Workload], candidates: Mapping[str, TtlParameters], system: System
) -> dict[str, dict[str, tuple[float, float]]]:
    """Figures of each candidate over the same workloads (one for each seed): name -> figure -> (mean, half of the 95 %
    interval)."""
    return {
        name: summed_up(
            [simulated(workload, production(parameters), system, seed=i) for i, workload in enumerate(workloads)]
        )
        for name, parameters in candidates.items()
    }


def pareto(figures: Mapping[str, Mapping[str, tuple[float, float]]]) -> list[str]:
    """Names of the candidates that no other one beats in every one of COSTS, the least work of the origin first."""

    def beats(first: str, other: str) -> bool:
        ones, others = (tuple(figures[name][cost][0] for cost in COSTS) for name in (first, other))
        return ones != others and all(a <= b for a, b in zip(ones, others, strict=True))

    front = [name for name in figures if not any(beats(other, name) for other in figures)]
    return sorted(front, key=lambda name: figures[name][COSTS[0]][0])
