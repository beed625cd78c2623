"""Demand for queries: reads served from cache because the node guards them, and misses while the node is full.

Demand is kept by query, not by registration. A registration dies with the first write that changes its result; the demand for
its query outlives it. A query evicted for room is refused for a minute, so that two queries do not take turns. The refusal ends
early at more than twice its former demand (admission by frequency, as in "TinyLFU", ACM TOS 2017). A query whose predicate
raised several times within minutes is refused too, because each failure invalidates it for nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final

from quaestor.invalidation.matching.entities import LiveRegistration
from quaestor.model import Usage
from quaestor.ttl.decay import DecayedCounts

HALF_LIFE_MS: Final = 300_000
TURNED_AWAY_MS: Final = 60_000
_FAILURES: Final = 2.5
_MOST_FAILURES: Final = 100
_MOST_USED: Final = 10_000
"""Bound on the queries in a usage report; no report has more (registry/usage_reports.py)."""
_LONGEST_ID: Final = 128
_MOST_AT_ONCE: Final = 1_000_000.0
"""Bound on the reads that one report can truthfully contain for one query."""


class Demand:
    """Decayed demand by query. Bounded: the query with the oldest demand is forgotten first. Not thread-safe.

    max_queries: number of queries whose demand is remembered; half as many evicted queries.
    """

    def __init__(self, *, max_queries: int = 100_000) -> None:
        self._wanted = DecayedCounts(half_life_ms=HALF_LIFE_MS, max_keys=max_queries)
        self._failed = DecayedCounts(half_life_ms=HALF_LIFE_MS, max_keys=max_queries // 10)
        self._evicted: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._most_evicted = max_queries // 2
        self._failures: deque[str] = deque(maxlen=_MOST_FAILURES)

    def add(self, query_id: str, count: float, *, now_ms: int) -> None:
        """Count reads that the cache saved, or would have saved."""
        if count > 0:
            self._wanted.add(query_id, now_ms=now_ms, count=min(count, _MOST_AT_ONCE))

    def used(self, usage: Usage, live: Mapping[str, LiveRegistration], *, now_ms: int) -> None:
        """Count reads answered from cache. live: registrations by id. O(queries and registrations named)."""
        for query_id, reads in usage.queries[:_MOST_USED]:
            if len(query_id) <= _LONGEST_ID:
                self.add(query_id, reads, now_ms=now_ms)
        for registration_id, reads in usage.registrations[:_MOST_USED]:
            registration = live.get(registration_id)
            if registration is not None:
                self.add(registration.query.query_id, reads, now_ms=now_ms)

    def of(self, query_id: str, *, now_ms: int) -> float:
        """Return the demand for this query in reads, decayed: a read five minutes ago counts half."""
        return self._wanted.of(query_id, now_ms=now_ms)

    def evicted(self, query_id: str, *, now_ms: int) -> None:
        """Note that this query was evicted for room."""
        self._evicted.pop(query_id, None)
        self._evicted[query_id] = now_ms, self.of(query_id, now_ms=now_ms)
        if len(self._evicted) > self._most_evicted:
            self._evicted.popitem(last=False)

    def failed(self, query_id: str, *, now_ms: int) -> None:
        """Note that the predicate of this query raised."""
        self._failed.add(query_id, now_ms=now_ms)
        self._failures.append(query_id)

    def take_failures(self) -> list[str]:
        """Return the queries whose predicates have raised since the last call: the newest hundred."""
        failures = list(self._failures)
        self._failures.clear()
        return failures

    def refusal(self, query_id: str, *, now_ms: int) -> str | None:
        """Return the reason to refuse a query at once, or None.

        The request counts as demand if the query was evicted before.
        """
        if self._evicted and (entry := self._evicted.get(query_id)) is not None:
            at_ms, then = entry
            self.add(query_id, 1, now_ms=now_ms)
            if now_ms < at_ms + TURNED_AWAY_MS and self.of(query_id, now_ms=now_ms) < 2 * then + 2:
                return "the query was evicted for room a moment ago, and its demand has not grown enough"
            del self._evicted[query_id]
        if len(self._failed) and self._failed.of(query_id, now_ms=now_ms) > _FAILURES:
            return "the predicate of the query failed several times within the last minutes"
        return None
