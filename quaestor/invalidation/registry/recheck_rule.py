"""Rule for rechecks: a query runs again before its entries are evicted if that costs less than the misses it saves.

The rule learns four numbers about each query: the cost of running it, and the cost of an answer made of it; the reads from
cache between two changes, and the share of unchanged results. With `recheck="auto"` the query runs again if

    share kept x min(1, reads between two changes) x cost of an answer  >=  cost of running it,

A recheck saves one miss if the result is the same and a client reads it before the next change; otherwise it saves nothing.
A query whose recheck does not pay is still tried once in a while, because the written data change too
(docs/adr/0015-recheck-before-evicting.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_PER_SECOND: Final = 50
"""Rechecks of one query in a second. In a burst of writes its entries are evicted, and the next miss registers the query."""
_MOST_MS_PER_SECOND: Final = 100
"""Largest total time of these rechecks, in ms."""
_LEAST_PER_SECOND: Final = 5
"""Rechecks of one query in a second that are allowed beyond that time."""
MOST_WAITING: Final = 64
"""Queries of one process that wait to run again, or run."""
_TRIED_ONE_IN: Final = 8
_MOST_QUERIES: Final = 10_000
_WEIGHT: Final = 0.2
"""Weight of the newest observation."""
_WEIGHT_OF_KEPT: Final = 0.1
"""Weight of the newest recheck: two changed results in a row prove little."""


@dataclass(slots=True)
class _Learnt:
    """Observations of one query.

    query_ms, answer_ms: duration of the query, and of making an answer of it.
    kept: share of rechecks with the same result.
    reads: reads from cache between two changes.
    counted: reads since the last change.
    changes: number of changes so far.
    second, begun: the present second, and rechecks begun in it.
    """

    query_ms: float
    answer_ms: float = 0.0
    kept: float = 0.5
    reads: float = 1.0
    counted: int = 0
    changes: int = 0
    second: int = 0
    begun: int = 0


class RecheckRule:
    """Rule for the queries of one process. Arithmetic only, O(1) a call.

    Safe from several threads; two simultaneous calls may count once.
    """

    def __init__(self, mode: str) -> None:
        self._always = mode == "on"
        self._never = mode == "off"
        self._queries: dict[str, _Learnt] = {}

    def registered(self, query_id: str, *, query_ms: float) -> None:
        """Note that a handler ran a query."""
        learnt = self._queries.get(query_id)
        if learnt is None:
            if len(self._queries) >= _MOST_QUERIES:
                self._queries.pop(next(iter(self._queries)), None)
            self._queries[query_id] = _Learnt(query_ms)
        else:
            learnt.query_ms += _WEIGHT * (query_ms - learnt.query_ms)

    def answered(self, query_id: str, *, cost_ms: float) -> None:
        """Note the cost of an answer that is made of this query, perhaps with others."""
        learnt = self._queries.get(query_id)
        if learnt is not None:
            learnt.answer_ms += (_WEIGHT if learnt.answer_ms else 1.0) * (cost_ms - learnt.answer_ms)

    def served(self, query_id: str, reads: int) -> None:
        """Note that answers made of this query were served from cache."""
        learnt = self._queries.get(query_id)
        if learnt is not None:
            learnt.counted += reads

    def wanted(self, query_id: str, *, now_ms: int, waiting: int) -> bool:
        """Whether a query shall run again, now that a write may have changed its result.

        waiting: number of this process's queries that wait for a recheck.
        """
        learnt = self._queries.get(query_id)
        if learnt is None or self._never:
            return False
        learnt.changes += 1
        learnt.reads += _WEIGHT * (learnt.counted - learnt.reads)
        learnt.counted = 0
        if learnt.second != now_ms // 1_000:
            learnt.second, learnt.begun = now_ms // 1_000, 0
        affordable = max(_LEAST_PER_SECOND, _MOST_MS_PER_SECOND / max(learnt.query_ms, 0.001))
        if waiting >= MOST_WAITING or learnt.begun >= min(MOST_PER_SECOND, affordable):
            return False
        if not self._always and not self.pays(query_id) and learnt.changes % _TRIED_ONE_IN:
            return False
        learnt.begun += 1
        return True

    def pays(self, query_id: str) -> bool:
        """Whether a recheck of this query is expected to save more than it costs."""
        learnt = self._queries.get(query_id)
        if learnt is None:
            return False
        saved_ms = learnt.kept * min(1.0, learnt.reads) * max(learnt.answer_ms, learnt.query_ms)
        return saved_ms >= learnt.query_ms

    def rechecked(self, query_id: str, *, kept: bool, query_ms: float) -> None:
        """Note that a query ran again, and whether its result was the same."""
        learnt = self._queries.get(query_id)
        if learnt is not None:
            learnt.kept += _WEIGHT_OF_KEPT * (kept - learnt.kept)
            learnt.query_ms += _WEIGHT * (query_ms - learnt.query_ms)
