"""Metrics of invalidations: their number, precision, speed and evictions."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families


class InvalidationMetrics:
    """Invalidated registrations and their effects.

    invalidations: by match type and precision.
    widened: widened queries, by reason.
    evicted: evicted cached responses. withdrawn: registrations that a full node no longer guards.
    rechecks: by outcome (vocabularies.RECHECKS); recheck_s: duration of each.
    purges: by CDN and result. sent_dead: answers that died while they were being sent, and were purged again.
    latency_s: database write to evicted entry.
    purge_latency_s: database write to acknowledged purge.
    """

    def __init__(self, families: Families) -> None:
        self.widened = families.counters(
            "widened", "queries matched against more writes than change them", reason=vocabularies.WIDENED
        )
        self.invalidations = families.counters(
            "invalidations", "invalidated registrations",
            match_type=vocabularies.MATCH_TYPES, precision=vocabularies.PRECISION,
        )  # fmt: skip
        self.evicted = families.counter("evicted", "cached responses evicted by an invalidation")
        self.withdrawn = families.counter("withdrawn", "registrations that a full matching node no longer guards")
        self.rechecks = families.counters(
            "rechecks", "queries run again before their entries are evicted", outcome=vocabularies.RECHECKS
        )
        self.recheck_s = families.histogram("recheck_seconds", "reported change to verdict")
        self.purges = families.counters("purges", "CDN purges", cdn=None, result=frozenset({"done", "failed"}))
        self.sent_dead = families.counter(
            "sent_dead", "answers invalidated while they were being sent, and purged again"
        )
        self.latency_s = families.histogram("invalidation_latency_seconds", "database write to evicted entry")
        self.purge_latency_s = families.histogram("purge_latency_seconds", "database write to acknowledged purge")
