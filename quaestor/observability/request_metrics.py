"""Metrics of requests: hits, misses, waits, and the reasons for uncached answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from quaestor.observability import vocabularies
from quaestor.observability.families import Families
from quaestor.observability.hooks import HIT_IN_MEMORY, Observers, ReadAnswered


class RequestMetrics:
    """Requests by outcome, and their waits. Event loop only.

    observers: receive each answered request.
    requests: by outcome.
    hits: by layer.
    misses: by reason.
    coalesced, wait_s: by place of the wait.
    stale_served: by reason.
    uncacheable: by reason.
    assembled: lists assembled from records.
    maintained: maintainable lists, by their source.
    rest_problems: problem documents of the REST router.
    slow_bodies: requests to the proxy given up because their bodies came too slowly, by reason.
    own_writes, own_writes_s: answers that waited for their own writes, by outcome; duration of the wait.
    miss_s: request to answer.
    handler_s: handler called to answer complete.
    """

    def __init__(self, families: Families, observers: Observers[ReadAnswered]) -> None:
        self._observers = observers
        self.requests = families.counters("requests", "requests by outcome", outcome=vocabularies.OUTCOMES)
        self.hits = families.counters("hits", "answers from the cache, by layer", layer=vocabularies.LAYERS)
        self.misses = families.counters("misses", "handler runs, by the reason of the miss", reason=vocabularies.MISSES)
        self.coalesced = families.counters(
            "coalesced", "requests answered by the handler run of another request", where=vocabularies.WAITS
        )
        self.stale_served = families.counters(
            "stale_served", "answers served past their lifetime", why=vocabularies.STALE
        )
        self.uncacheable = families.counters(
            "uncacheable", "responses not cached, by reason", reason=vocabularies.REASONS
        )
        self.assembled = families.counters(
            "assembled", "lists assembled from records", outcome=frozenset({"hit", "miss"})
        )
        self.maintained = families.counters(
            "maintained_lists",
            "lists made from their maintained result, or from the database",
            source=frozenset({"result", "database"}),
        )
        self.rest_problems = families.counters("rest_problems", "problem documents of the REST router", problem=None)
        self.slow_bodies = families.counters(
            "proxy_slow_bodies", "requests whose bodies came too slowly, by reason", why=vocabularies.SLOW
        )
        self.own_writes = families.counters(
            "own_writes",
            "answers to requests that wrote, by the known state of their writes",
            outcome=vocabularies.OWN_WRITES,
        )
        self.own_writes_s = families.histogram("own_writes_seconds", "time for which such answers were held back")
        self.miss_s = families.histogram("miss_seconds", "request to answer, of misses")
        self.handler_s = families.histogram("handler_seconds", "handler called to answer complete")
        self.wait_s = families.histograms(
            "wait_seconds", "wait for the handler run of another request", where=vocabularies.WAITS
        )
        self._hits = self.requests.labels("hit")
        self._memory_hits = self.hits.labels("memory")
        self._uncounted_hits = 0
        self._uncounted_misses: Counter[str] = Counter()
        self._uncounted_refusals: Counter[str] = Counter()

    def hit(self) -> None:
        """Count a hit in memory, without the metric's lock, which would be a good part of the cost of a hit."""
        self._uncounted_hits += 1
        if self._observers:
            self._observers.tell(HIT_IN_MEMORY)

    def flush(self) -> None:
        """Move hits in memory, misses and refusals into the metrics. Called on the event loop, once a second."""
        hits, self._uncounted_hits = self._uncounted_hits, 0
        self._hits.inc(hits)
        self._memory_hits.inc(hits)
        for reason, number in self._uncounted_misses.items():
            self.requests.labels("miss").inc(number)
            self.misses.labels(reason).inc(number)
        for reason, number in self._uncounted_refusals.items():
            self.uncacheable.labels(reason).inc(number)
        self._uncounted_misses.clear()
        self._uncounted_refusals.clear()

    def served(self, layer: str) -> None:
        """Count a hit outside the fast path.

        layer: one of vocabularies.LAYERS.
        """
        self._hits.inc()
        self.hits.labels(layer).inc()
        if self._observers:
            self._observers.tell(ReadAnswered(outcome="hit", detail=layer))

    def missed(self, reason: str, *, seconds: float) -> None:
        """Count a handler run, as cheaply as a hit.

        reason: one of vocabularies.MISSES.
        seconds: request to answer.
        """
        self._uncounted_misses[reason] += 1
        self.miss_s.observe(seconds)
        if self._observers:
            self._observers.tell(ReadAnswered(outcome="miss", detail=reason, seconds=seconds))

    def refused(self, reasons: Iterable[str]) -> None:
        """Count the reasons why an answer was not stored.

        reasons: of vocabularies.REASONS.
        """
        for reason in reasons:
            self._uncounted_refusals[reason] += 1

    def followed(self, where: str) -> None:
        """Count an answer from another request's handler run.

        where: one of vocabularies.WAITS.
        """
        self.requests.labels("coalesced").inc()
        self.coalesced.labels(where).inc()
        if self._observers:
            self._observers.tell(ReadAnswered(outcome="coalesced", detail=where))

    def list_made(self, *, maintained: bool) -> None:
        """Count a maintainable list that had to be made.

        maintained: it was made from its maintained result, not from the database.
        """
        self.maintained.labels("result" if maintained else "database").inc()

    def list_assembled(self, *, ready: bool) -> None:
        """Count a list assembled from records.

        ready: all records were there.
        """
        self.assembled.labels("hit" if ready else "miss").inc()
        if ready:
            self.hits.labels("assembled").inc()
