"""Counts of the effects of lifetimes, from the requests that the app sees. Pure.

A request is judged by this question: could a copy of the answer before it have answered it? A recorded trace, from which a
prediction is made, and live traffic are counted alike, for the canary and for the rest. The model ignores how many clients share
a copy, so both sides ignore it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

MOST_RESULTS: Final = 50_000
"""Results that are followed at a time; the one filled longest ago goes first."""


@dataclass(slots=True)
class Counts:
    """Counts of some results.

    requests: for results whose lifetime was the estimator's.
    hits: requests within the lifetime of an earlier copy, which could have answered.
    lifetimes: that were given: with an answer of the handler, and again with the first request after one was over.
    invalidations: lifetimes that a change cut short. Each costs a purge, and a key in the Cache Sketch.
    stale: requests within the staleness bound after such a change, while the earlier lifetime still ran. A client may have
        received an older answer.
    """

    requests: int = 0
    hits: int = 0
    lifetimes: int = 0
    invalidations: int = 0
    stale: int = 0

    def add(self, other: Counts) -> None:
        """Add another one's."""
        for name in NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def plain(self) -> dict[str, int]:
        """The counts by name."""
        return asdict(self)


NAMES: Final = tuple(field.name for field in fields(Counts))


def total(several: Iterable[Counts]) -> Counts:
    """The sum of several."""
    summed = Counts()
    for counts in several:
        summed.add(counts)
    return summed


@dataclass(slots=True)
class _Followed:
    """Result that is followed.

    given_ms: length of its lifetimes.
    until_ms: end of the running one; -1: it has changed, and the next answer is the handler's.
    exposed_until_ms: until then, clients may be answered with what was before the last change.
    """

    counts: Counts
    queries: tuple[Hashable, ...]
    given_ms: int
    until_ms: int
    exposed_until_ms: int = -1


class Meter:
    """Meter of one process. O(queries of a result) a call. Not thread-safe.

    counts_of: the counts that a result goes into.
    delta_ms: what a client may be behind.
    """

    def __init__(self, counts_of: Callable[[Hashable], Counts], *, delta_ms: int) -> None:
        self._counts_of = counts_of
        self._delta_ms = delta_ms
        self._followed: OrderedDict[Hashable, _Followed] = OrderedDict()
        self._results: dict[Hashable, set[Hashable]] = {}

    def __len__(self) -> int:
        return len(self._followed)

    def filled(self, result: Hashable, queries: Sequence[Hashable], *, now_ms: int, given_ms: int) -> None:
        """Note that the handler answered, and for how long copies of that may live."""
        followed = self._followed.get(result)
        if followed is None:
            followed = _Followed(self._counts_of(result), tuple(dict.fromkeys(queries)), given_ms, -1)
            self._followed[result] = followed
            for query in followed.queries:
                self._results.setdefault(query, set()).add(result)
            if len(self._followed) > MOST_RESULTS:
                self._forget()
        else:
            self._followed.move_to_end(result)
            followed.given_ms = given_ms
        self._requested(followed, 1, now_ms)
        followed.until_ms = now_ms + given_ms
        followed.counts.lifetimes += 1

    def served(self, result: Hashable, times: int, *, now_ms: int) -> None:
        """Note that a result was served from what is stored, so often in the last second. Entries that another process filled,
        or that are older than these counts, are not counted."""
        followed = self._followed.get(result)
        if followed is None or followed.until_ms < 0 or times < 1:
            return
        if followed.until_ms < now_ms:
            self._requested(followed, 1, now_ms)
            followed.until_ms = now_ms + followed.given_ms
            followed.counts.lifetimes += 1
            times -= 1
        self._requested(followed, times, now_ms)

    def changed(self, query: Hashable, *, now_ms: int) -> None:
        """Note that a query's result has changed."""
        for result in self._results.get(query, ()):
            followed = self._followed[result]
            if followed.until_ms >= now_ms:
                followed.counts.invalidations += 1
                followed.exposed_until_ms = min(followed.until_ms, now_ms + self._delta_ms)
            followed.until_ms = -1

    def withdrawn(self, query: Hashable) -> None:
        """Note that a query is no longer guarded, though nothing was written."""
        for result in self._results.get(query, ()):
            self._followed[result].until_ms = -1

    def _requested(self, followed: _Followed, times: int, now_ms: int) -> None:
        followed.counts.requests += times
        if followed.until_ms >= now_ms:
            followed.counts.hits += times
        if followed.exposed_until_ms >= now_ms:
            followed.counts.stale += times

    def _forget(self) -> None:
        result, followed = self._followed.popitem(last=False)
        for query in followed.queries:
            others = self._results[query]
            others.discard(result)
            if not others:
                del self._results[query]
