"""Rates of change by kind of query: the prior of a query without a history. Pure.

Writes to the members change a result, and so do records that enter it. Before a query has been watched, only other queries of the
same collection show how often records enter. Each kind therefore keeps three sums: the time of watching, the
changes in that time, and the changes that writes to members explain. The unexplained changes, for each second of watching, are
the rate at which records enter. Without known members they are the whole rate, the prior of a cold start.

Intervals that are still open count too. Only the beginning of an open interval is needed, so the sums are O(1) to read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from quaestor.ttl.history import FOR_EVER_MS

LEAST_CHANGES: Final = 8
"""Changes of a kind before its rate is believed."""
_MOST_CHANGES = 1_024
"""With so many the past is halved."""
MOST_KINDS: Final = 1_024
_SPARE = 1_000


@dataclass(slots=True)
class KindSums:
    """Sums of one kind. Of what is closed, and of the open intervals: when they began, what was expected of them.

    explained: changes that the writes to members explain.
    open: by query its interval, from when until when (ms) it is watched, and the rate of the writes to its members. Plain tuples,
        because there are as many as queries: they are made fast, and garbage collection passes them over.
    open_hz, open_hz_ms: sum of the open intervals' rates, and of each rate times its beginning.
    """

    changes: float = 0.0
    watched_ms: float = 0.0
    explained: float = 0.0
    open: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    open_from_ms: float = 0.0
    open_hz: float = 0.0
    open_hz_ms: float = 0.0

    def unexplained_hz(self, now_ms: int) -> float:
        """Rate of the changes that members' writes do not explain, a second."""
        if self.changes < LEAST_CHANGES:
            return 0.0
        watched_ms = self.watched_ms + len(self.open) * now_ms - self.open_from_ms
        explained = self.explained + (self.open_hz * now_ms - self.open_hz_ms) / 1_000
        unexplained = self.changes - explained if explained > 0 else self.changes
        if unexplained <= 0:
            return 0.0
        return unexplained / (watched_ms if watched_ms > 1 else 1.0) * 1_000


class CollectionRates:
    """Rates of one estimator's kinds. Not thread-safe.

    max_queries: intervals under watch at a time; further ones are not counted.
    """

    def __init__(self, *, max_queries: int) -> None:
        self._max_queries = max_queries
        self._sums: OrderedDict[str, KindSums] = OrderedDict()
        self._open: dict[str, KindSums] = {}
        self._ends: list[tuple[int, int, str]] = []
        self._number = 0
        self._at_ms = 0

    def unexplained_hz(self, kind: str) -> float:
        """Rate at which results of this kind change for other reasons than writes to their members, as of the newest observation.
        O(1)."""
        sums = self._sums.get(kind)
        return sums.unexplained_hz(self._at_ms) if sums is not None else 0.0

    def watch(self, query_id: str, kind: str, *, now_ms: int, until_ms: int, rate_hz: float) -> None:
        """Note that a query is watched until then. O(log n).

        rate_hz: of the writes to its members.
        """
        if now_ms > self._at_ms:
            self._at_ms = now_ms
        if self._ends and self._ends[0][0] < now_ms:
            self._expire(now_ms)
        known = self._open.get(query_id)
        if known is not None:
            from_ms, end_ms, hz = known.open[query_id]
            if until_ms > end_ms:
                known.open[query_id] = from_ms, until_ms, hz
            return
        if len(self._open) >= self._max_queries:
            return
        sums = self._sums.get(kind)
        if sums is None:
            if len(self._sums) >= MOST_KINDS:
                self._sums.popitem(last=False)
            sums = self._sums[kind] = KindSums()
        self._open[query_id] = sums
        sums.open[query_id] = now_ms, until_ms, rate_hz
        sums.open_from_ms += now_ms
        sums.open_hz += rate_hz
        sums.open_hz_ms += rate_hz * now_ms
        if until_ms < FOR_EVER_MS:
            self._push(until_ms, query_id)

    def changed(self, query_id: str, *, now_ms: int) -> None:
        """Note that a watched query's result has changed. O(1)."""
        if now_ms > self._at_ms:
            self._at_ms = now_ms
        sums = self._close(query_id, now_ms)
        if sums is not None:
            sums.changes += 1
            if sums.changes > _MOST_CHANGES:
                sums.changes /= 2
                sums.watched_ms /= 2
                sums.explained /= 2

    def withdrawn(self, query_id: str, *, now_ms: int) -> None:
        """Note that a query is no longer watched. O(1)."""
        self._at_ms = max(self._at_ms, now_ms)
        self._close(query_id, now_ms)

    def forget(self, query_id: str, *, until_ms: int) -> None:
        """Forget a query that would have been watched until then. O(1)."""
        self._close(query_id, min(until_ms, self._at_ms))

    def _push(self, until_ms: int, query_id: str) -> None:
        if (
            len(self._ends) > 2 * len(self._open) + _SPARE
        ):  # most of them are of intervals that were closed before their end
            ends = ((sums.open[name][1], i, name) for i, (name, sums) in enumerate(self._open.items()))
            self._ends = [end for end in ends if end[0] < FOR_EVER_MS]
            heapify(self._ends)
            self._number = len(self._open)
        self._number += 1
        heappush(self._ends, (until_ms, self._number, query_id))

    def _expire(self, now_ms: int) -> None:
        while self._ends and self._ends[0][0] < now_ms:
            query_id = heappop(self._ends)[2]
            sums = self._open.get(query_id)
            if sums is None:
                continue
            until_ms = sums.open[query_id][1]
            if until_ms < now_ms:
                self._close(query_id, until_ms)
            elif until_ms < FOR_EVER_MS:
                self._push(until_ms, query_id)

    def _close(self, query_id: str, at_ms: int) -> KindSums | None:
        sums = self._open.pop(query_id, None)
        if sums is None:
            return None
        from_ms, _, rate_hz = sums.open.pop(query_id)
        sums.open_from_ms -= from_ms
        sums.open_hz -= rate_hz
        sums.open_hz_ms -= rate_hz * from_ms
        if at_ms > from_ms:
            sums.watched_ms += at_ms - from_ms
            sums.explained += rate_hz * (at_ms - from_ms) / 1_000
        return sums
