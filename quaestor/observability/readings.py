"""Readings of a metrics registry, as plain data to send to another process."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry


def readings(registry: CollectorRegistry) -> dict[str, dict[str, float]]:
    """Return the counters and gauges, by label: {"requests": {"hit": 12, ...}, "registrations": {"all": 3}, ...}."""
    values: dict[str, dict[str, float]] = {}
    for metric in registry.collect():
        if metric.type not in ("counter", "gauge"):
            continue
        name = metric.name.removeprefix("quaestor_")
        for sample in metric.samples:
            if not sample.name.endswith("_created"):
                values.setdefault(name, {})[",".join(sample.labels.values()) or "all"] = sample.value
    return values


def histogram(registry: CollectorRegistry, name: str) -> dict[str, float]:
    """Return the cumulative buckets of a histogram without labels, by upper bound in seconds as text; the last is "+Inf"."""
    for metric in registry.collect():
        if metric.name == name:
            return _buckets(metric.samples)
    return {}


def _buckets(samples: Any) -> dict[str, float]:
    return {sample.labels["le"]: sample.value for sample in samples if sample.name.endswith("_bucket")}


def quantile_s(buckets: dict[str, float], share: float) -> float | None:
    """Return the upper bound of the bucket that reaches this share (0..1) of the observations.

    None without observations, or beyond the last bound.
    """
    whole = buckets.get("+Inf", 0.0)
    if whole <= 0:
        return None
    for bound, count in buckets.items():
        if count >= share * whole:
            return None if bound == "+Inf" else float(bound)
    return None
