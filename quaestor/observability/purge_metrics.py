"""Metrics of the purges on their way to CDNs."""

from __future__ import annotations

from typing import Final

from quaestor.observability import vocabularies
from quaestor.observability.families import Families
from quaestor.purge_ports import QueueSize

_WORSE: Final = ("ok", "throttled", "over-budget", "dark")
"""States, each worse than those before it."""


class PurgeMetrics:
    """Queues of purges, and what became of the requests.

    requests: by CDN and answer.
    queued: open and dead purges, by CDN and state.
    oldest_s: age of the oldest open purge, by CDN: so old may be what this CDN serves.
    stale_s: for so long at most it may still serve what open purges are about, by CDN.
    canary: 1 for what was found last, by CDN and finding.
    state: 1 for the state that a CDN is in, by CDN and state.
    """

    def __init__(self, families: Families) -> None:
        self._places: dict[str, dict[str, tuple[str, QueueSize, float, float]]] = {}
        self.requests = families.counters(
            "purge_requests", "requests to CDNs", cdn=None, answer=vocabularies.PURGE_ANSWERS
        )
        self.queued = families.gauges("purges_queued", "purges in the outbox", cdn=None, state=vocabularies.QUEUED)
        self.oldest_s = families.gauges("purges_oldest_seconds", "age of the oldest open purge", cdn=None)
        self.stale_s = families.gauges(
            "cdn_stale_seconds", "bound until a CDN serves nothing any more that open purges are about", cdn=None
        )
        self.canary = families.gauges("cdn_canary", "what a CDN's canary found", cdn=None, finding=vocabularies.CANARY)
        self.state = families.gauges("cdn_state", "how a CDN takes purges", cdn=None, state=vocabularies.CDN_STATES)

    def told(self, cdn: str, place: str, state: str, size: QueueSize, now_ms: int, *, stale_s: float) -> None:
        """Note the size of the queue of one place of a CDN, its state, one of vocabularies.CDN_STATES, and the bound that holds
        meanwhile. Of several places of one name sizes are added up, and the worst state, age and bound count."""
        age_s = 0.0 if size.oldest_ms is None else max(0, now_ms - size.oldest_ms) / 1_000
        places = self._places.setdefault(cdn, {})
        places[place] = (state, size, age_s, stale_s)
        known = list(places.values())
        for name, numbers in (
            ("waiting", [one.waiting for _, one, _, _ in known]),
            ("taken", [one.taken for _, one, _, _ in known]),
            ("dead", [one.dead for _, one, _, _ in known]),
        ):
            self.queued.labels(cdn, name).set(sum(numbers))
        self.oldest_s.labels(cdn).set(max(age for _, _, age, _ in known))
        self.stale_s.labels(cdn).set(max(stale for _, _, _, stale in known))
        worst = max((one for one, _, _, _ in known), key=_WORSE.index)
        for name in vocabularies.CDN_STATES:
            self.state.labels(cdn, name).set(name == worst)
