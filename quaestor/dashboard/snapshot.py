"""Snapshot of an app: the reports of its processes put together, once a second, for all viewers alike. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from quaestor.dashboard.history import COLUMNS
from quaestor.dashboard.lifetimes import lifetimes
from quaestor.dashboard.process_report import Report
from quaestor.observability.readings import quantile_s

_HEAVIEST: Final = 12
_SUMS: Final = (
    "requests", "hits", "misses", "uncacheable", "invalidations", "widened", "reexecuted", "rechecks", "evicted", "withdrawn",
    "purges", "purge_requests", "verifications", "divergences", "failures", "registrations", "stale_served",
)  # fmt: skip
_HIGHEST: Final = (
    "sketch_keys", "sketch_fill", "sketch_false_positives", "purges_queued", "purges_oldest_seconds", "cdn_canary", "cdn_state",
    "grid_lag_seconds", "column_lag_ms", "pipeline_lag_ms",
)  # fmt: skip
"""Of what all processes see alike, the worst."""


def composed(
    reports: Sequence[Report], *, now_ms: int, published: int | None, canary: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The snapshot, without the points of its history.

    published: number of the parameters that count; None: nobody could be asked.
    canary: what is known of it; None: there is none, or nobody could be asked.
    """
    readings = [report["readings"] for report in reports]
    evicted_s = dict(_merged((report["evicted_s"] for report in reports), lambda a, b: a + b))
    judged = {kind: one for report in reports for kind, one in report["judged"].items()}
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
        "sums": {name: _merged((one.get(name, {}) for one in readings), lambda a, b: a + b) for name in _SUMS},
        "highest": {name: _merged((one.get(name, {}) for one in readings), max) for name in _HIGHEST},
        "lifetime_factor": _merged((one.get("sketch_lifetime_factor", {}) for one in readings), min),
        "evicted_ms": {
            name: None if (at_s := quantile_s(evicted_s, share)) is None else at_s * 1_000
            for name, share in (("p50", 0.5), ("p99", 0.99))
        },
        "lifetimes": lifetimes((one for report in reports for one in report["outcomes"]), judged),
        "heaviest": _heaviest(reports),
        "warnings": sorted({text for report in reports for text in report["warnings"]}),
        "quarantined": sorted({route for report in reports for route in report["quarantined"]}),
        "published": published,
        "canary": canary,
    }  # fmt: skip


def _merged(several: Iterable[Mapping[str, float]], how: Callable[[float, float], float]) -> dict[str, float]:
    merged: dict[str, float] = {}
    for one in several:
        for label, value in one.items():
            merged[label] = how(merged[label], value) if label in merged else value
    return merged


def _heaviest(reports: Sequence[Report]) -> list[dict[str, Any]]:
    cost_ms: Counter[str] = Counter()
    times: Counter[str] = Counter()
    newest: dict[str, Mapping[str, Any]] = {}
    for report in reports:
        for one in report["heaviest"]:
            cost_ms[one["key"]] += one["cost_ms"]
            times[one["key"]] += one["times"]
            newest[one["key"]] = one
    return [
        {**newest[key], "cost_ms": round(cost, 1), "times": times[key]} for key, cost in cost_ms.most_common(_HEAVIEST)
    ]
