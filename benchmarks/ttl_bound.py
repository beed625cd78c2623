"""Bound for estimators of lifetimes that do not know the future: an estimator that knows the process of writes.

Only an oracle knows the dice. The time to the next write of a Poisson process has no memory. An estimator can only choose a
quantile, however much of the past it knows. Here everything is known except the dice: the true rates, when a burst is on, the
phase of the cycle. The quantile is chosen in hindsight, on the measured requests, for each of ten groups of results with
equally many reads. The choice gives the most hits for the staleness. No estimator has either. The result is therefore a bound
for all estimators that give each result a quantile of its lifetime, and nearly a bound for any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from quaestor.simulation.simulate import System, by_result
from quaestor.simulation.workload import Mix, Workload
from quaestor.ttl.baselines import StaticTtl

QUANTILES: Final = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
GROUPS: Final = 10
PRICES: Final = np.geomspace(0.05, 200, 60)
"""The worth of one stale answer, in hits."""
_BURST, _BURST_S = 5, 1.0
_BUSY = 10 / 11
_LONGEST_S = 3_600.0


class KnownProcess(StaticTtl):
    """Estimator that knows the process that writes, and not its dice; implements LifetimeEstimator. One result a query."""

    def __init__(self, mix: Mix, *, quantile: float, ttl_min_ms: int) -> None:
        super().__init__(ttl_min_ms)
        self._mix, self._ttl_min_ms = mix, ttl_min_ms
        self._means = -math.log1p(-quantile)
        self._rates_hz = rates_hz(mix)
        self._burst_s: dict[str, float] = {}

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        """See LifetimeEstimator."""
        query_id, at_s = query_ids[0], now_ms / 1_000
        rate_hz, length_s = float(self._rates_hz[int(query_id)]), self._mix.period_s
        match self._mix.writes:
            case "bursts":
                left_s = _BURST_S - (at_s - self._burst_s.get(query_id, -math.inf))
                ttl_s = self._until([(max(0.0, left_s), _BURST - 1), (_LONGEST_S, rate_hz / _BURST)])
            case "cycle":
                phase_s, half_s = at_s % length_s, length_s / 2
                busy, quiet = (half_s, 2 * rate_hz * _BUSY), (half_s, 2 * rate_hz * (1 - _BUSY))
                turns = [busy, quiet] * math.ceil(_LONGEST_S / length_s)
                if phase_s >= half_s:
                    turns = turns[1:]
                ttl_s = self._until([(half_s - phase_s % half_s, turns[0][1]), *turns[1:]])
            case _:
                ttl_s = self._means / rate_hz
        return int(min(max(ttl_s, self._ttl_min_ms / 1_000), _LONGEST_S) * 1_000)

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None:
        """See LifetimeEstimator."""
        at_s = now_ms / 1_000
        if at_s - self._burst_s.get(query_id, -math.inf) > _BURST_S:
            self._burst_s[query_id] = at_s

    def _until(self, stretches: Sequence[tuple[float, float]]) -> float:
        """The time at which so many changes are expected.

        stretches: length and rate of each.
        """
        needed, passed_s = self._means, 0.0
        for length_s, rate_hz in stretches:
            if rate_hz * length_s >= needed:
                return passed_s + needed / rate_hz
            needed -= rate_hz * length_s
            passed_s += length_s
        return passed_s


def rates_hz(mix: Mix) -> Any:
    """True rate of the changes of each result."""
    weights = 1.0 / np.arange(1, mix.results + 1) ** mix.skew
    return weights / weights.sum() * mix.rate_hz * (1 - mix.reads)


def bound(
    mix: Mix, workloads: Sequence[Workload], system: System, *, ttl_min_ms: int
) -> list[list[tuple[float, float]]]:
    """Bound for each workload of a mix: (share of stale answers, share of fresh hits in browsers), ascending."""
    rates = rates_hz(mix)
    group = np.minimum((np.cumsum(rates) / rates.sum() * GROUPS).astype(int), GROUPS - 1)
    rows = []
    for workload in workloads:
        fresh, stale = np.zeros((2, GROUPS, len(QUANTILES)))
        for i, quantile in enumerate(QUANTILES):
            estimator = KnownProcess(mix, quantile=quantile, ttl_min_ms=ttl_min_ms)
            hits, old = by_result(workload, estimator, system)
            fresh[:, i] = np.bincount(group, hits, minlength=GROUPS) / len(workload.read_s)
            stale[:, i] = np.bincount(group, old, minlength=GROUPS) / len(workload.read_s)
        every = np.arange(GROUPS)
        best = [np.argmax(fresh - price * stale, axis=1) for price in PRICES]
        rows.append(sorted({(float(stale[every, column].sum()), float(fresh[every, column].sum())) for column in best}))
    return rows
