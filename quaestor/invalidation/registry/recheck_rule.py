"""Rule of when a query is run again before what relies on it is evicted: when that costs less than the misses it saves.

Of each query four things are learnt: what running it costs, what an answer costs that is made of it, how often it was answered
from cache between two changes, and how often its result turned out to be the same. With `recheck="auto"` it is run again if

    share kept x min(1, reads between two changes) x cost of an answer  >=  cost of running it,

because a recheck saves one miss if the result is the same and somebody asks before the next change, and saves nothing otherwise.
What does not pay is tried once in a while all the same, because what is written changes too
(docs/adr/0015-recheck-before-evicting.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_PER_SECOND: Final = 50
"""Rechecks of one query in a second: under a burst of writes its results are evicted, and registered by the next miss."""
_MOST_MS_PER_SECOND: Final = 100
"""Time that they take together."""
_LEAST_PER_SECOND: Final = 5
"""Rechecks of one query in a second that may take longer."""
MOST_WAITING: Final = 64
"""Queries of one process that wait to be run again, or are."""
_TRIED_ONE_IN: Final = 8
_MOST_QUERIES: Final = 10_000
_WEIGHT: Final = 0.2
"""Of the newest observation."""
_WEIGHT_OF_KEPT: Final = 0.1
"""Of the newest one of them: two changed results in a row say little."""


@dataclass(slots=True)
class _Learnt:
    """What is known of one query.

    query_ms, answer_ms: what running it, and making an answer of it, takes.
    kept: share of rechecks with the same result.
    reads: answered from cache between two changes.
    counted: reads since the last change.
    changes: so far.
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
    """Rule for the queries of one process. Arithmetic only, O(1) a call. Called from several threads: what two of them say at the
    same moment may be counted once."""

    def __init__(self, mode: str) -> None:
        self._always = mode == "on"
        self._never = mode == "off"
        self._queries: dict[str, _Learnt] = {}

    def registered(self, query_id: str, *, query_ms: float) -> None:
        """Note that a query was run by a handler."""
        learnt = self._queries.get(query_id)
        if learnt is None:
            if len(self._queries) >= _MOST_QUERIES:
                self._queries.pop(next(iter(self._queries)), None)
            self._queries[query_id] = _Learnt(query_ms)
        else:
            learnt.query_ms += _WEIGHT * (query_ms - learnt.query_ms)

    def answered(self, query_id: str, *, cost_ms: float) -> None:
        """Note what an answer has cost that is made of this query, perhaps with others."""
        learnt = self._queries.get(query_id)
        if learnt is not None:
            learnt.answer_ms += (_WEIGHT if learnt.answer_ms else 1.0) * (cost_ms - learnt.answer_ms)

    def served(self, query_id: str, reads: int) -> None:
        """Note that answers made of this query were served from cache."""
        learnt = self._queries.get(query_id)
        if learnt is not None:
            learnt.counted += reads

    def wanted(self, query_id: str, *, now_ms: int, waiting: int) -> bool:
        """Whether a query is to be run again, now that a write may have changed its result.

        waiting: queries of this process that wait for that.
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
        """Whether running this query again is expected to save more than it costs."""
        learnt = self._queries.get(query_id)
        if learnt is None:
            return False
        saved_ms = learnt.kept * min(1.0, learnt.reads) * max(learnt.answer_ms, learnt.query_ms)
        return saved_ms >= learnt.query_ms

    def rechecked(self, query_id: str, *, kept: bool, query_ms: float) -> None:
        """Note that a query was run again, and whether its result was the same."""
        learnt = self._queries.get(query_id)
        if learnt is not None:
            learnt.kept += _WEIGHT_OF_KEPT * (kept - learnt.kept)
            learnt.query_ms += _WEIGHT * (query_ms - learnt.query_ms)
