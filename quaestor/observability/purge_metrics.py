"""Metrics of the purges on their way to CDNs."""

from __future__ import annotations

from quaestor.observability import vocabularies
from quaestor.observability.families import Families
from quaestor.purge_ports import QueueSize


class PurgeMetrics:
    """Queues of purges, and what became of the requests.

    requests: by CDN and answer.
    queued: open and dead purges, by CDN and state.
    oldest_s: age of the oldest open purge, by CDN: so old may be what this CDN serves.
    canary: 1 for what was found last, by CDN and finding.
    state: 1 for the state that a CDN is in, by CDN and state.
    """

    def __init__(self, families: Families) -> None:
        self.requests = families.counters(
            "purge_requests", "requests to CDNs", cdn=None, answer=vocabularies.PURGE_ANSWERS
        )
        self.queued = families.gauges("purges_queued", "purges in the outbox", cdn=None, state=vocabularies.QUEUED)
        self.oldest_s = families.gauges("purges_oldest_seconds", "age of the oldest open purge", cdn=None)
        self.canary = families.gauges("cdn_canary", "what a CDN's canary found", cdn=None, finding=vocabularies.CANARY)
        self.state = families.gauges("cdn_state", "how a CDN takes purges", cdn=None, state=vocabularies.CDN_STATES)

    def told(self, cdn: str, state: str, size: QueueSize, now_ms: int) -> None:
        """Note the size of a CDN's queue, and its state, one of vocabularies.CDN_STATES."""
        for name, number in (("waiting", size.waiting), ("taken", size.taken), ("dead", size.dead)):
            self.queued.labels(cdn, name).set(number)
        self.oldest_s.labels(cdn).set(0 if size.oldest_ms is None else max(0, now_ms - size.oldest_ms) / 1_000)
        for name in vocabularies.CDN_STATES:
            self.state.labels(cdn, name).set(name == state)
