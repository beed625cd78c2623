"""Metrics and log events, in one place, so that every failure has one name.

Metric names are `quaestor_*` (docs/metrics.md lists them); log events are constant dotted names with fields, and the trace id of
the request that they belong to. No bodies, no secrets, no raw keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from quaestor.model import CachedResponse
from quaestor.observability import labels
from quaestor.observability.labels import Gathered, Labelled, Vocabulary
from quaestor.observability.removals import Removals
from quaestor.observability.tracing import Tracing

_LATENCY_BUCKETS_S = (0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Telemetry:
    """One per Quaestor, with a registry of its own, so that several can live in one process.

    tracing: spans; off by default. vocabularies: of each labelled metric, its labels and the values that each may have.
    """

    def __init__(self, *, tracing: Tracing | None = None) -> None:
        self.tracing = tracing or Tracing()
        self.registry = CollectorRegistry()
        self.departures = Removals()
        self.vocabularies: dict[str, dict[str, Vocabulary]] = {}

        self.requests = self._counters("requests", "requests by outcome", outcome=labels.OUTCOMES)
        self.hits = self._counters("hits", "answers out of the cache by where they came from", layer=labels.LAYERS)
        self.misses = self._counters(
            "misses", "handler runs by why there was nothing to answer with", reason=labels.MISSES
        )
        self.coalesced = self._counters(
            "coalesced", "requests answered by another one's handler run", where=labels.WAITS
        )
        self.stale_served = self._counters("stale_served", "answers that had outlived their lifetime", why=labels.STALE)
        self.uncacheable = self._counters("uncacheable", "responses not cached, by reason", reason=labels.REASONS)
        self.assembled = self._counters(
            "assembled", "lists put together from records", outcome=frozenset({"hit", "miss"})
        )
        self.rest_problems = self._counters("rest_problems", "problem documents of the REST router", problem=None)

        self.widened = self._counters(
            "widened", "queries that more writes concern than change them", reason=labels.WIDENED
        )
        self.invalidations = self._counters(
            "invalidations", "invalidated registrations",
            match_type=labels.MATCH_TYPES, precision=labels.PRECISION,
        )  # fmt: skip
        self.reexecuted = self._counters(
            "reexecuted", "answers made anew after an invalidation, compared with the old ones",
            precision=labels.PRECISION, answer=labels.ANSWERS,
        )  # fmt: skip
        self.evicted = self._counter("evicted", "cached responses evicted by an invalidation")
        self.withdrawn = self._counter("withdrawn", "registrations that a full matching node guards no longer")
        self.purges = self._counters("purges", "CDN purges", cdn=None, result=frozenset({"done", "failed"}))

        self.evictions = self._counters("evictions", "entries that left this process's memory", reason=labels.LEFT)
        self.refused = self._counters(
            "refused", "entries that a store did not take", level=labels.LEVELS, reason=labels.REFUSED
        )
        self.stored_bytes = self._counters(
            "stored_bytes", "entries put into the shared store", form=frozenset({"plain", "sent"})
        )
        self.store_entries = self._gauges("store_entries", "entries held", level=labels.LEVELS)
        self.store_bytes = self._gauges("store_bytes", "bytes held", level=labels.LEVELS)

        self.failures = self._counters("failures", "failures of parts we depend on", part=labels.PARTS)
        self.registrations = self._gauge("registrations", "live registrations of this process")
        self.subscribed_queries = self._gauge("subscribed_queries", "different queries that this process follows")
        self.subscribers = self._gauge("subscribers", "live results held by this process")
        self.subscriptions_lag_s = self._gauge(
            "subscriptions_lag_seconds", "how far what this process follows lags behind the database, at its slowest"
        )
        self.subscription_events = self._counter("subscription_events", "changes of followed results")
        self.subscription_wholes = self._counter("subscription_wholes", "followed results taken over as a whole")
        self.subscriptions_refused = self._counter(
            "subscriptions_refused", "followed queries that the grid gave up, or refused"
        )
        self.serving = self._gauge("serving", "1 while cached responses may be served, of one query partition at least")
        self.grid_lag_s = self._gauge("grid_lag_seconds", "how far the slowest matching node lags behind the database")
        self.column_lag_ms = self._gauges("column_lag_ms", "how far a query partition's slowest cell lags", column=None)
        self.pipeline_entries = self._gauges("pipeline_entries", "entries in a pipeline", pipeline=None)
        self.pipeline_bytes = self._gauges("pipeline_bytes", "bytes in a pipeline", pipeline=None)
        self.pipeline_lag_ms = self._gauges("pipeline_lag_ms", "how far its reader lags", pipeline=None)

        self.miss_s = self._histogram("miss_seconds", "request to answer, of misses")
        self.handler_s = self._histogram("handler_seconds", "handler called to answer complete")
        self.activation_s = self._histogram("activation_seconds", "registration sent to activated by every cell")
        self.store_s = self._histogram("store_seconds", "index, sketch and stores told of an entry")
        self.wait_s = self._histograms("wait_seconds", "waited for another one's handler run", where=labels.WAITS)
        self.invalidation_latency_s = self._histogram("invalidation_latency_seconds", "database write to evicted entry")
        self.purge_latency_s = self._histogram("purge_latency_seconds", "database write to acknowledged purge")

        self._log = structlog.get_logger("quaestor")
        self._hits = self.requests.labels("hit")
        self._memory_hits = self.hits.labels("memory")
        self._uncounted_hits = 0

    # Making metrics

    def _declared(self, name: str, vocabularies: dict[str, Vocabulary]) -> tuple[str, ...]:
        self.vocabularies[f"quaestor_{name}"] = vocabularies
        return tuple(vocabularies)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"quaestor_{name}", text, registry=self.registry)

    def _counters(self, name: str, text: str, **labels: Vocabulary) -> Labelled[Counter]:
        names = self._declared(name, labels)
        return Labelled(Counter(f"quaestor_{name}", text, names, registry=self.registry), list(labels.values()))

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"quaestor_{name}", text, registry=self.registry)

    def _gauges(self, name: str, text: str, **labels: Vocabulary) -> Labelled[Gauge]:
        names = self._declared(name, labels)
        return Labelled(Gauge(f"quaestor_{name}", text, names, registry=self.registry), list(labels.values()))

    def _histogram(self, name: str, text: str) -> Histogram:
        return Gathered(f"quaestor_{name}", text, buckets=_LATENCY_BUCKETS_S, registry=self.registry)

    def _histograms(self, name: str, text: str, **labels: Vocabulary) -> Labelled[Histogram]:
        names = self._declared(name, labels)
        metric = Histogram(f"quaestor_{name}", text, names, buckets=_LATENCY_BUCKETS_S, registry=self.registry)
        return Labelled(metric, list(labels.values()))

    # Counting

    def hit(self) -> None:
        """A hit in memory. Event loop only: without the metric's lock, which would be a good part of what a hit costs."""
        self._uncounted_hits += 1

    def count_hits(self) -> None:
        """Move the hits into the metrics; called on the event loop, once a second."""
        hits, self._uncounted_hits = self._uncounted_hits, 0
        self._hits.inc(hits)
        self._memory_hits.inc(hits)

    def served(self, layer: str) -> None:
        """A hit that took a closer look. layer: one of metrics.LAYERS."""
        self._hits.inc()
        self.hits.labels(layer).inc()

    def missed(self, reason: str, *, seconds: float) -> None:
        """The handler answered, `seconds` after the request came. reason: one of metrics.MISSES."""
        self.requests.labels("miss").inc()
        self.misses.labels(reason).inc()
        self.miss_s.observe(seconds)

    def followed(self, where: str) -> None:
        """Answered by another request's handler run. where: one of metrics.WAITS."""
        self.requests.labels("coalesced").inc()
        self.coalesced.labels(where).inc()

    def list_assembled(self, *, ready: bool) -> None:
        """A list was put together from records; ready: all of them were there."""
        self.assembled.labels("hit" if ready else "miss").inc()
        if ready:
            self.hits.labels("assembled").inc()

    def left(self, response: CachedResponse, why: str) -> None:
        """An entry has left this process's memory. why: one of metrics.LEFT."""
        self.evictions.labels(why).inc()
        self.departures.left(response, why)

    def kept(self, response: CachedResponse) -> None:
        """An answer has become an entry."""
        compared = self.departures.returned(response)
        if compared is not None:
            precision, same = compared
            self.reexecuted.labels(precision, "same" if same else "changed").inc()

    # Saying

    def event(self, name: str, **fields: Any) -> None:
        """An ordinary event, e.g. event("engine.started", mode="embedded")."""
        self._say(self._log.info, name, fields)

    def failure(self, part: str, name: str, error: BaseException | str, **fields: Any) -> None:
        """A part we depend on failed: one count, one log line."""
        self.failures.labels(part).inc()
        self._say(self._log.warning, name, {"part": part, "error": str(error)} | fields)

    def _say(self, say: Callable[..., object], name: str, fields: Mapping[str, Any]) -> None:
        with suppress(OSError, ValueError):  # whoever read the log is gone, or it is closed: that stops nothing else
            say(name, **fields, **self._trace())

    def _trace(self) -> dict[str, str]:
        trace_id = self.tracing.trace_id()
        return {} if trace_id is None else {"trace_id": trace_id}

    def exposition(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)
