"""Outcomes of the lifetimes that were given lately: a sample of them, watched from when each was given. Pure.

The sample is of beginnings. Each has its present outcome: changed after some time, or alive for at least some time. The clock
alone censors this cohort, as a Kaplan-Meier curve requires. A list of lifetimes that ended lately would be a list of short lives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quaestor.ttl.calibration import Outcome
from quaestor.ttl.history import FOR_EVER_MS

MOST_OUTCOMES: Final = 4_096
PER_SECOND: Final = 2.0
"""Lifetimes that are sampled, a second: the sample reaches back for half an hour at least."""
_AT_ONCE: Final = 256.0


@dataclass(slots=True)
class _Watched:
    """Lifetime under watch.

    until_ms: end of the watch.
    lived_ms: None while it is alive.
    """

    kind: str
    query_ids: tuple[str, ...]
    from_ms: int
    given_ms: int
    until_ms: int
    lived_ms: int | None = None


class Outcomes:
    """Sample of one process's lifetimes. O(queries of a result) a call. Not thread-safe.

    limit: lifetimes that are remembered, the newest.
    per_second: lifetimes that are sampled a second, on average.
    """

    def __init__(self, *, limit: int = MOST_OUTCOMES, per_second: float = PER_SECOND) -> None:
        self._limit = limit
        self._per_ms = per_second / 1_000
        self._sample: deque[_Watched] = deque()
        self._open: dict[str, _Watched] = {}
        self._allowance, self._at_ms = _AT_ONCE, 0

    def __len__(self) -> int:
        return len(self._sample)

    def give(self, query_ids: Sequence[str], kind: str, *, now_ms: int, given_ms: int, watched_ms: int | None) -> None:
        """Note a lifetime that was given to a result made of these queries. While one of theirs is open, no other is opened.

        watched_ms: for so long its end would be seen; None: for as long as it takes.
        """
        if any(query_id in self._open and self._alive(self._open[query_id], now_ms) for query_id in query_ids):
            return
        self._allowance = min(_AT_ONCE, self._allowance + max(0, now_ms - self._at_ms) * self._per_ms)
        self._at_ms = now_ms
        if self._allowance < 1:
            return
        self._allowance -= 1
        until_ms = FOR_EVER_MS if watched_ms is None else now_ms + watched_ms
        watched = _Watched(kind, tuple(dict.fromkeys(query_ids)), now_ms, given_ms, until_ms)
        for query_id in watched.query_ids:
            self._open[query_id] = watched
        self._sample.append(watched)
        if len(self._sample) > self._limit:
            self._close(self._sample.popleft())

    def changed(self, query_id: str, *, now_ms: int) -> None:
        """Note that a query's result has changed."""
        watched = self._open.get(query_id)
        if watched is not None:
            if now_ms <= watched.until_ms:
                watched.lived_ms = max(0, now_ms - watched.from_ms)
            self._close(watched)

    def withdrawn(self, query_id: str, *, now_ms: int) -> None:
        """Note that a query is no longer guarded, though nothing was written."""
        watched = self._open.get(query_id)
        if watched is not None:
            watched.until_ms = min(watched.until_ms, now_ms)
            self._close(watched)

    def so_far(self, *, now_ms: int, limit: int = MOST_OUTCOMES) -> list[tuple[str, Outcome]]:
        """Kind and outcome of each of the newest lifetimes, as of now. A lifetime that still runs counts as at
        least its present age."""
        return [
            (watched.kind, _outcome(watched, now_ms))
            for watched in list(self._sample)[-limit:]
            if watched.from_ms <= now_ms
        ]

    def _alive(self, watched: _Watched, now_ms: int) -> bool:
        if watched.lived_ms is None and now_ms <= watched.until_ms:
            return True
        self._close(watched)
        return False

    def _close(self, watched: _Watched) -> None:
        for query_id in watched.query_ids:
            if self._open.get(query_id) is watched:
                del self._open[query_id]


def _outcome(watched: _Watched, now_ms: int) -> Outcome:
    if watched.lived_ms is not None:
        return Outcome(given_ms=watched.given_ms, lived_ms=watched.lived_ms, changed=True)
    return Outcome(given_ms=watched.given_ms, lived_ms=min(now_ms, watched.until_ms) - watched.from_ms, changed=False)
