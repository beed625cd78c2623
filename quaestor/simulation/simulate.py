"""Simulation of one workload: browsers with sketches, CDN edges, the app's store and its database, with the estimator of
production.

The simulation counts layers, staleness, the sketch and invalidations. Latency follows from the layers that answered. Throughput
follows from the cost of each answer for the app and its database, up to the capacity of the bottleneck. Waiting in queues is
not simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from statistics import fmean, stdev
from typing import Any, Final

import numpy as np

from quaestor.cache_sketch.sizing import DEFAULT, Geometry
from quaestor.errors import ConfigurationError
from quaestor.ports import LifetimeEstimator
from quaestor.simulation import kernel
from quaestor.simulation.workload import Workload

Counts = np.ndarray[Any, np.dtype[np.int64]]

_LATENCIES_DRAWN = 200_000
_AT_ONCE = 4_096
_MOST_LISTED = 65_536
_STUDENT: Final = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""97.5 % quantiles of Student's t, by the number of runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Simulated system. Latencies are (mean, standard deviation) in ms, there and back; measured values may replace
    them.

    delta_s: time after which a browser fetches the sketch again.
    detection_s: time from a write until the app's store knows it.
    purge_s: time from then until the CDN has purged.
    browsers: whether browsers keep copies.
    ahead_s: how far ahead browsers assume the app's clock to be. A copy's lifetime ends earlier for them by this much.
    edges: number of the CDN's edges; 0: no CDN.
    browser_ms: latency of an answer from the browser's own copy.
    client_cdn_ms, cdn_app_ms, database_ms: latencies between the layers, the last including the query.
    hit_ms, fill_ms: core time that the app spends on an answer from its store, and on one from the database.
    cores: number of the app's cores.
    """

    delta_s: float = 10.0
    detection_s: float = 0.05
    purge_s: float = 0.1
    browsers: bool = True
    ahead_s: float = 0.0
    edges: int = 2
    browser_ms: tuple[float, float] = (0.0, 0.0)
    client_cdn_ms: tuple[float, float] = (4.0, 0.2)
    cdn_app_ms: tuple[float, float] = (146.0, 5.0)
    database_ms: tuple[float, float] = (3.0, 1.0)
    hit_ms: float = 0.1
    fill_ms: float = 2.0
    cores: int = 4
    geometry: Geometry = DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one run. Shares lie in 0..1 and refer to the requests; rates are per second.

    browser, cdn, app, database: shares that each layer answered.
    browser_fresh: share that the browser's own copy answered, in its newest version.
    mean_ms, p50_ms, p99_ms: latency.
    throughput_hz: requests that the app's cores could serve at this mixture.
    stale: share of answers older than the newest version.
    stale_mean_s, stale_max_s: age of these answers beyond the newest version.
    false_positives: revalidations of copies that were fresh, because the sketch listed them by mistake.
    sketch_mean, sketch_peak: number of keys in the sketch when it was fetched.
    invalidations_hz, purges_hz: changes of guarded results; such changes while copies were alive.
    origin_ms: time of cores and of the database for one request.
    """

    requests: int
    browser: float
    cdn: float
    app: float
    database: float
    browser_fresh: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    throughput_hz: float
    stale: float
    stale_mean_s: float
    stale_max_s: float
    false_positives: float
    sketch_mean: float
    sketch_peak: float
    invalidations_hz: float
    purges_hz: float
    origin_ms: float


def simulated(
    workload: Workload, estimator: LifetimeEstimator, system: System, *, seed: int = 0, counted_from_s: float = 0.0
) -> Figures:
    """Run a workload. The time grows with its events: see docs/ttl_theory.md for how many a second.

    seed: seed of the latencies.
    counted_from_s: requests before this time fill the caches, and are in no figure. Raises ConfigurationError if no request comes
        later.
    """
    if counted_from_s > float(workload.read_s[-1:].sum()):
        raise ConfigurationError(f"nothing is read after counted_from_s ({counted_from_s:g} s): begin to count earlier")
    counters, sums = np.zeros(kernel.COUNTERS, dtype=np.int64), np.zeros(kernel.SUMS)
    _run(workload, estimator, system, counters, sums, counted_from_s)
    requests = max(1, int(counters[kernel.REQUESTS]))
    length_s = max(workload.length_s - counted_from_s, 1e-9)
    share = counters[:4] / requests
    drawn_ms = latencies_ms(share, system, seed)
    p50_ms, p99_ms = np.quantile(drawn_ms, (0.5, 0.99)).tolist()
    app_ms = float(share[kernel.APP] * system.hit_ms + share[kernel.DATABASE] * system.fill_ms)
    stale, listed = int(counters[kernel.STALE]), max(1.0, float(sums[kernel.LISTED_SEEN]))
    return Figures(
        requests=requests,
        browser=float(share[kernel.BROWSER]),
        cdn=float(share[kernel.CDN]),
        app=float(share[kernel.APP]),
        database=float(share[kernel.DATABASE]),
        browser_fresh=int(counters[kernel.BROWSER] - counters[kernel.BROWSER_STALE]) / requests,
        mean_ms=float(drawn_ms.mean()),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        throughput_hz=system.cores * 1_000 / app_ms if app_ms else float("inf"),
        stale=stale / requests,
        stale_mean_s=float(sums[kernel.STALE_S]) / max(1, stale),
        stale_max_s=float(sums[kernel.STALE_MAX_S]),
        false_positives=int(counters[kernel.FALSE_POSITIVES]) / requests,
        sketch_mean=float(sums[kernel.LISTED_SUM]) / listed,
        sketch_peak=float(counters[kernel.LISTED_PEAK]),
        invalidations_hz=int(counters[kernel.INVALIDATIONS]) / length_s,
        purges_hz=int(counters[kernel.PURGES]) / length_s,
        origin_ms=float(app_ms + share[kernel.DATABASE] * system.database_ms[0]),
    )


def by_result(workload: Workload, estimator: LifetimeEstimator, system: System) -> tuple[Counts, Counts]:
    """Run a workload, and count for each result the fresh hits in browsers, and the answers older than the newest version."""
    numbers = _run(workload, estimator, system, np.zeros(kernel.COUNTERS, dtype=np.int64), np.zeros(kernel.SUMS), 0.0)
    return numbers[:, kernel.FRESH_HITS], numbers[:, kernel.STALE_ANSWERS]


def summed_up(runs: Sequence[Figures]) -> dict[str, tuple[float, float]]:
    """Each figure over several runs: its mean, and half the width of its 95 % confidence interval (0 for one run)."""
    return {name: interval([float(getattr(run, name)) for run in runs]) for name in asdict(runs[0])}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % confidence interval (0 for one value)."""
    student = _STUDENT.get(len(values), 1.96)
    half = student * stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0
    return fmean(values), half


def _run(
    workload: Workload, estimator: LifetimeEstimator, system: System, counters: Any, sums: Any, counted_from_s: float
) -> Any:
    """Run the kernel over a workload, and return the columns of numbers by result."""
    results, edges = workload.results, max(1, system.edges)
    order = np.argsort(workload.write_of, kind="stable")
    first = np.searchsorted(workload.write_of[order], np.arange(results)).astype(np.int64)
    by_result_s = np.append(workload.write_s[order], np.inf)
    state = np.zeros(kernel.STATE)
    numbers = np.zeros((results, kernel.NUMBERS), dtype=np.int64)
    numbers[:, kernel.STORED] = -1
    places = min(workload.clients * results + 1, 1 << (2 * len(workload.read_s) + 16).bit_length())
    invalidated_of, invalidated_ms = (
        np.zeros(_AT_ONCE, dtype=np.int64),
        np.zeros(_AT_ONCE, dtype=np.int64),
    )
    arguments = (
        state, numbers, np.zeros((results, 5)),
        (np.full((edges, results), -1, dtype=np.int64), np.zeros((edges, results))),
        np.zeros((places, kernel.COPY)), np.full(workload.clients, -1e18),
        np.zeros(ceil(workload.length_s) + 8, dtype=np.int64), _rates(system.geometry),
        counters, sums, (invalidated_of, invalidated_ms),
    )  # fmt: skip
    options = np.array(
        [
            system.delta_s,
            system.detection_s,
            system.purge_s,
            float(system.browsers),
            float(system.edges),
            counted_from_s,
            system.ahead_s,
        ]
    )
    reads = (workload.read_s, workload.read_of, workload.read_by)
    writes = (workload.write_s, workload.write_of, first, by_result_s)
    kinds, rates_hz = workload.kinds, workload.rates_hz.tolist()
    ended_of, ended_ms = (
        invalidated_of.data,
        invalidated_ms.data,
    )  # views that yield plain numbers; elements of an array are objects
    for of, now_ms, times in kernel.run(reads, writes, options, *arguments):
        for i in range(times):
            estimator.observe_invalidation(str(ended_of[i]), now_ms=ended_ms[i])
        if of == kernel.NOTHING:
            continue
        rate_hz, kind, name = rates_hz[of], kinds[of], (str(of),)
        given_ms = estimator.estimate_ms(name, write_rate_hz=rate_hz, now_ms=now_ms, kind=kind)
        estimator.observe_read(name, now_ms=now_ms, given_ms=given_ms, write_rate_hz=rate_hz, kind=kind)
        state[kernel.ANSWER_S] = given_ms / 1_000
    return numbers


def _rates(geometry: Geometry) -> Any:
    """False positive rate by the number of keys in the sketch; computed for some numbers, and interpolated between them."""
    known = np.unique(np.geomspace(1, _MOST_LISTED, 128).astype(np.int64))
    return np.interp(
        np.arange(_MOST_LISTED), np.append(0, known), [0.0, *(geometry.false_positive_rate(int(n)) for n in known)]
    )


def latencies_ms(share: Any, system: System, seed: int) -> Any:
    """Random latencies of a mixture of layers that answered.

    share: shares of the browser, the CDN, the app and the database, with a sum above 0.
    """
    dice = np.random.default_rng(seed)
    thrown = dice.random(_LATENCIES_DRAWN)
    layer = np.zeros(_LATENCIES_DRAWN, dtype=np.int8)
    for edge in np.cumsum(share / share.sum()):
        layer += thrown > edge
    drawn_ms = np.zeros(_LATENCIES_DRAWN)
    for reached, (mean_ms, deviation_ms) in (
        (kernel.CDN, system.client_cdn_ms),
        (kernel.APP, system.cdn_app_ms),
        (kernel.DATABASE, system.database_ms),
    ):
        there = np.flatnonzero(layer >= reached)
        drawn_ms[there] += np.maximum(0.0, dice.normal(mean_ms, deviation_ms, len(there)))
    own = np.flatnonzero(layer == kernel.BROWSER)
    drawn_ms[own] = np.maximum(0.0, dice.normal(*system.browser_ms, len(own)))
    return drawn_ms
