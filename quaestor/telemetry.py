"""Metrics and log events, in one place, so that every failure has one name.

Metric names are `quaestor_*`; log events are constant dotted names with fields. No bodies, no secrets, no raw keys.
"""

from __future__ import annotations

from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LATENCY_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Telemetry:
    """One per Quaestor, with a registry of its own, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "requests by outcome: hit, miss, coalesced, bypass", "outcome")
        self.uncacheable = self._counter("uncacheable", "responses not cached, by reason", "reason")
        self.widened = self._counter("widened", "queries that depend on any write to their collection", "reason")
        self.invalidations = self._counter("invalidations", "invalidated registrations by match type", "match_type")
        self.evicted = self._counter("evicted", "cached responses evicted by an invalidation")
        self.withdrawn = self._counter("withdrawn", "registrations that a full matching node guards no longer")
        self.purges = self._counter("purges", "CDN purges by adapter and result", "cdn", "result")
        self.stale_served = self._counter("stale_served", "answers that had outlived their lifetime, by why", "why")
        self.failures = self._counter("failures", "failures of parts we depend on", "part")
        self.rest_problems = self._counter("rest_problems", "problem documents of the REST router, by name", "problem")
        self.assembled = self._counter("assembled", "lists put together from records: hit, miss", "outcome")
        self.stored_bytes = self._counter(
            "stored_bytes", "entries put into the shared store: plain, and as sent after compression", "form"
        )
        self.memory_bytes = Gauge(
            "quaestor_memory_bytes", "entries in this process's memory, as counted against the budget", registry=self.registry
        )
        self.registrations = Gauge(
            "quaestor_registrations", "live registrations of this process", registry=self.registry
        )
        self.serving = Gauge(
            "quaestor_serving", "1 while cached responses may be served, 0 while bypassing", registry=self.registry
        )
        self.invalidation_latency_s = self._histogram("invalidation_latency_seconds", "database write to evicted entry")
        self.purge_latency_s = self._histogram("purge_latency_seconds", "database write to acknowledged purge")
        self.activation_s = self._histogram("activation_seconds", "registration sent to activated by every cell")
        self._log = structlog.get_logger("quaestor")
        self._hits = self.requests.labels("hit")
        self._uncounted_hits = 0

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"quaestor_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"quaestor_{name}", text, buckets=_LATENCY_BUCKETS_S, registry=self.registry)

    def hit(self) -> None:
        """A hit in memory. Event loop only: without the metric's lock, which would be a good part of what a hit costs."""
        self._uncounted_hits += 1

    def count_hits(self) -> None:
        """Move the hits into the metric; called on the event loop, once a second."""
        hits, self._uncounted_hits = self._uncounted_hits, 0
        self._hits.inc(hits)

    def event(self, name: str, **fields: Any) -> None:
        """An ordinary event, e.g. event("engine.started", mode="embedded")."""
        self._log.info(name, **fields)

    def failure(self, part: str, name: str, error: BaseException | str, **fields: Any) -> None:
        """A part we depend on failed: one count, one log line."""
        self.failures.labels(part).inc()
        self._log.warning(name, part=part, error=str(error), **fields)

    def exposition(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)
