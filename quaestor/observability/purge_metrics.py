"""Metrics of the purges on their way to CDNs."""

from __future__ import annotations

from typing import Final

from quaestor.observability import vocabularies
from quaestor.observability.families import Families
from quaestor.purge_ports import QueueSize

_WORSE: Final = ("ok", "throttled", "over-budget", "dark")
"""States of a CDN, each worse than those before it."""


class PurgeMetrics:
    """Queues of purges, and the outcomes of requests.

    requests: by CDN and answer.
    queued: open and dead purges, by CDN and state.
    oldest_s: age of the oldest open purge, by CDN, and so the age of the oldest stale answer that it may serve.
    stale_s: longest time for which it may still serve copies under open purges, by CDN.
    canary: 1 for the latest finding, by CDN and finding.
    state: 1 for the present state, by CDN and state.
    """

    def __init__(self, families: Families) -> None:
        self._places: dict[str, dict[str, tuple[str, QueueSize, float, float]]] = {}
        self.requests = families.counters(
            "purge_requests", "requests to CDNs", cdn=None, answer=vocabularies.PURGE_ANSWERS
        )
        self.queued = families.gauges("purges_queued", "purges in the outbox", cdn=None, state=vocabularies.QUEUED)
        self.oldest_s = families.gauges("purges_oldest_seconds", "age of the oldest open purge", cdn=None)
        self.stale_s = families.gauges(
            "cdn_stale_seconds", "longest time for which a CDN may still serve copies under open purges", cdn=None
        )
        self.canary = families.gauges(
            "cdn_canary", "latest finding of a CDN's canary", cdn=None, finding=vocabularies.CANARY
        )
        self.state = families.gauges(
            "cdn_state", "present state of a CDN's purges", cdn=None, state=vocabularies.CDN_STATES
        )

    def update(self, cdn: str, place: str, state: str, size: QueueSize, now_ms: int, *, stale_s: float) -> None:
        """Note the queue size of one place of a CDN, its state (one of vocabularies.CDN_STATES), and its present bound.

        For several places of one name, sizes are added, and the worst state, age and bound count.
        """
        age_s = 0.0 if size.oldest_ms is None else max(0, now_ms - size.oldest_ms) / 1_000
        places = self._places.setdefault(cdn, {})
        places[place] = (state, size, age_s, stale_s)
        known = list(places.values())
        for name, numbers in (
            ("waiting", [queue.waiting for _, queue, _, _ in known]),
            ("taken", [queue.taken for _, queue, _, _ in known]),
            ("dead", [queue.dead for _, queue, _, _ in known]),
        ):
            self.queued.labels(cdn, name).set(sum(numbers))
        self.oldest_s.labels(cdn).set(max(age for _, _, age, _ in known))
        self.stale_s.labels(cdn).set(max(stale for _, _, _, stale in known))
        worst = max((place_state for place_state, _, _, _ in known), key=_WORSE.index)
        for name in vocabularies.CDN_STATES:
            self.state.labels(cdn, name).set(name == worst)
