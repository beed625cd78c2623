"""Figures of what was counted: latency, throughput, histogram, layers, staleness; set-ups beside each other and the aims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks import harness
from benchmarks.query_caching.load import LAYERS, Phase

BUCKETS_MS: Final = (1, 3, 5, 10, 30, 100, 145, 160, 200, 300, 1_000)
AIMS: Final = {"CDN": {"lower_mean_latency": 7, "throughput": 5}, "full": {"lower_mean_latency": 30, "throughput": 11}}
"""Over uncached, from the source."""
HIT_RATE_AIM: Final = 0.01
LATENCY_AIM: Final = 0.10
BUSY: Final = 0.95
"""A part that uses so many of its cores is taken for the limit."""
LATE_MS: Final = 2.0
"""Clients whose event loop is so late, on the median, are the limit, however much they use: others take turns with them."""


def row(phase: Phase, *, cores: int) -> dict[str, Any]:
    """Figures of one phase.

    cores: of the machine.
    """
    if not phase.reads:
        raise RuntimeError(f"no read was answered with {phase.connections} connections, {phase.failed} failed")
    seconds = phase.ended_s - phase.begun_s
    latencies_ms = [read.took_s * 1_000 for read in phase.reads]
    counts, _ = np.histogram(latencies_ms, bins=[0, *BUCKETS_MS, np.inf])
    layers, stale_s = (
        Counter(read.layer for read in phase.reads),
        [read.stale_s for read in phase.reads if read.stale_s > 0],
    )
    reads = len(phase.reads)
    return {
        "connections": phase.connections,
        "throughput_hz": round(reads / seconds, 1),
        **harness.summary(latencies_ms),
        "histogram_ms": dict(zip([*map(str, BUCKETS_MS), "more"], counts.tolist(), strict=True)),
        "layers": {name: round(layers[number] / reads, 4) for number, name in enumerate(LAYERS)},
        "stale": round(len(stale_s) / reads, 5),
        "stale_p99_s": round(harness.percentile(stale_s, 0.99), 3) if stale_s else 0.0,
        "stale_max_s": round(max(stale_s, default=0.0), 3),
        "writes": phase.writes,
        "failed": phase.failed,
        "cores_used": {name: round(used, 2) for name, used in phase.cores.items()},
        "clients_late_ms": round(phase.late_ms, 3),
        "limited_by": limits(phase.cores, cores=cores, late_ms=phase.late_ms),
    }


def limits(used: Mapping[str, float], *, cores: int, late_ms: float) -> list[str]:
    """Parts without processor time left, which limited the phase: single-core parts, and the machine."""
    alone = [part for part in ("clients", "app", "proxies") if used.get(part, 0.0) >= BUSY]
    if late_ms >= LATE_MS and "clients" not in alone:
        alone.insert(0, "clients")
    return alone + (["machine"] if sum(used.values()) >= BUSY * cores else [])


def beside(measured: Mapping[str, Any], predicted: Mapping[str, Any]) -> dict[str, Any]:
    """How far a prediction is off: layers in points of a hundred, latencies and throughput as a ratio."""
    points = {layer: round(100 * (predicted["layers"][layer] - measured["layers"][layer]), 2) for layer in LAYERS}

    def over(what: str) -> float:
        return round(predicted[what] / measured[what], 3) if measured[what] else float("inf")

    ratios = {figure: over(figure) for figure in ("p50_ms", "p99_ms", "mean_ms", "throughput_hz")}
    return {
        "points": points,
        "over_measured": ratios,
        "aims_held": {
            "hit_rates": max(map(abs, points.values())) <= 100 * HIT_RATE_AIM,
            "p50_ms": abs(ratios["p50_ms"] - 1) <= LATENCY_AIM,
            "p99_ms": abs(ratios["p99_ms"] - 1) <= LATENCY_AIM,
        },
    }


def over_uncached(setups: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Each set-up over the uncached one, by connections."""
    rows = []
    for number, base in enumerate(setups["uncached"]):
        row: dict[str, Any] = {"connections": base["connections"]}
        for setup, aims in AIMS.items():
            figure = setups[setup][number]
            reached = {
                "lower_mean_latency": round(base["mean_ms"] / figure["mean_ms"], 2),
                "throughput": round(figure["throughput_hz"] / base["throughput_hz"], 2),
            }
            row[setup] = reached | {"aims_held": {name: reached[name] >= aim for name, aim in aims.items()}}
        rows.append(row)
    return rows
