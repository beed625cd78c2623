"""Snapshot of an app: the reports of its processes merged, once a second, and the same for all viewers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from quaestor.dashboard.history import COLUMNS
from quaestor.dashboard.lifetimes import lifetimes
from quaestor.dashboard.process_report import Report
from quaestor.dashboard.windows import COUNTED, EVICTED, WINDOWS_S
from quaestor.observability.readings import quantile_s

_HEAVIEST: Final = 12
_SUMS: Final = (
    "requests", "hits", "misses", "uncacheable", "invalidations", "widened", "reexecuted", "rechecks", "evicted", "withdrawn",
    "purges", "purge_requests", "verifications", "divergences", "failures", "registrations", "stale_served",
    "live_connections", "live_subscriptions", "live_begun", "live_ended", "live_messages", "live_overflows", "live_rejected",
    "live_slow_clients", "live_slow_readers", "live_unsent", "live_polls", "live_http", "subscribed_queries",
    "subscriptions_stalled", "followers", "followed_answers", "followed_reads", "follower_events", "followers_ended",
    "followers_refused",
)  # fmt: skip
_HIGHEST: Final = (
    "sketch_keys", "sketch_fill", "sketch_false_positives", "purges_queued", "purges_oldest_seconds", "cdn_canary", "cdn_state",
    "grid_lag_seconds", "column_lag_ms", "pipeline_lag_ms", "subscriptions_lag_seconds",
)  # fmt: skip
"""Figures that all processes see alike: the worst value counts."""


def composed(
    reports: Sequence[Report], *, now_ms: int, published: int | None, canary: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Snapshot without the points of its history.

    published: number of the parameters that count; None: not known, because they could not be read.
    canary: facts about the canary; None: there is none, or it could not be read.
    """
    readings = [report["readings"] for report in reports]
    highest = {name: _merged((reading.get(name, {}) for reading in readings), max) for name in _HIGHEST}
    judged = {kind: judged_kind for report in reports for kind, judged_kind in report["judged"].items()}
    return {
        "at_ms": now_ms,
        "columns": COLUMNS,
        "processes": [
            {
                "process": report["process"], "serving": report["serving"],
                "entries": report["readings"].get("store_entries", {}).get("memory", 0),
                "bytes": report["readings"].get("store_bytes", {}).get("memory", 0),
            }
            for report in reports
        ],
        "sums": {name: _merged((reading.get(name, {}) for reading in readings), lambda a, b: a + b) for name in _SUMS},
        "windows": {str(seconds): _window([report["windows"][str(seconds)] for report in reports]) for seconds in WINDOWS_S},
        "highest": highest,
        "cdn": bool(highest["purges_queued"]),
        "routes": _routes(reports),
        "lifetime_factor": _merged((reading.get("sketch_lifetime_factor", {}) for reading in readings), min),
        "evicted_ms": _evicted_ms(report["evicted_s"] for report in reports),
        "lifetimes": lifetimes((outcome for report in reports for outcome in report["outcomes"]), judged),
        "heaviest": _heaviest(reports),
        "warnings": sorted({text for report in reports for text in report["warnings"]}),
        "quarantined": sorted({route for report in reports for route in report["quarantined"]}),
        "published": published,
        "canary": canary,
    }  # fmt: skip


def _window(several: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    counted: dict[str, Any] = {
        name: _merged((counts.get(name, {}) for counts in several), lambda a, b: a + b)
        for name in COUNTED
        if name != EVICTED
    }
    return counted | {"evicted_ms": _evicted_ms(counts.get(EVICTED, {}) for counts in several)}


def _evicted_ms(several: Iterable[Mapping[str, float]]) -> dict[str, float | None]:
    """Quantiles of the time from a write to the eviction, upper bounds of their buckets; None: nothing was evicted."""
    buckets = _cumulative(several)
    return {
        name: None if (at_s := quantile_s(buckets, share)) is None else at_s * 1_000
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def _cumulative(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sum of cumulative buckets, from the lowest bound on. A process leaves out buckets without observations."""
    processes = list(several)
    bounds = sorted({bound for buckets in processes for bound in buckets}, key=float)
    return {bound: sum(_below(buckets, bound) for buckets in processes) for bound in bounds}


def _below(buckets: Mapping[str, float], bound: str) -> float:
    return max((count for other, count in buckets.items() if float(other) <= float(bound)), default=0.0)


def _merged(several: Iterable[Mapping[str, float]], how: Callable[[float, float], float]) -> dict[str, float]:
    merged: dict[str, float] = {}
    for values in several:
        for label, value in values.items():
            merged[label] = how(merged[label], value) if label in merged else value
    return merged


def _routes(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Routes of all processes, with the most used first."""
    merged: dict[str, dict[str, Any]] = {}
    break_even = _merged((report["break_even"] for report in reports), max)
    for report in reports:
        for reported in report["routes"]:
            route = merged.setdefault(
                reported["route"],
                {
                    "route": reported["route"], "hits": 0, "misses": 0, "passed": 0, "why": {}, "collections": [],
                    "break_even": break_even.get(reported["route"]),
                },
            )  # fmt: skip
            for name in ("hits", "misses", "passed"):
                route[name] += reported[name]
            route["why"] = _merged((route["why"], reported["why"]), lambda a, b: a + b)
            route["collections"] = sorted({*route["collections"], *reported["collections"]})
    return sorted(merged.values(), key=lambda row: -(row["hits"] + row["misses"] + row["passed"]))


def _heaviest(reports: Sequence[Report]) -> list[dict[str, Any]]:
    cost_ms: Counter[str] = Counter()
    times: Counter[str] = Counter()
    newest: dict[str, Mapping[str, Any]] = {}
    for report in reports:
        for result in report["heaviest"]:
            cost_ms[result["key"]] += result["cost_ms"]
            times[result["key"]] += result["times"]
            newest[result["key"]] = result
    return [
        {**newest[key], "cost_ms": round(cost, 1), "times": times[key]} for key, cost in cost_ms.most_common(_HEAVIEST)
    ]
