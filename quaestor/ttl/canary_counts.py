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


NAMES: Final = tuple(one.name for one in fields(Counts))


def total(several: Iterable[Counts]) -> Counts:
    """The sum of several."""
    summed = Counts()
    for one in several:
        summed.add(one)
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
        one = self._followed.get(result)
        if one is None:
            one = _Followed(self._counts_of(result), tuple(dict.fromkeys(queries)), given_ms, -1)
            self._followed[result] = one
            for query in one.queries:
                self._results.setdefault(query, set()).add(result)
            if len(self._followed) > MOST_RESULTS:
                self._forget()
        else:
            self._followed.move_to_end(result)
            one.given_ms = given_ms
        self._requested(one, 1, now_ms)
        one.until_ms = now_ms + given_ms
        one.counts.lifetimes += 1

    def served(self, result: Hashable, times: int, *, now_ms: int) -> None:
        """Note that a result was served from what is stored, so often in the last second. Entries that another process filled,
        or that are older than these counts, are not counted."""
        one = self._followed.get(result)
        if one is None or one.until_ms < 0 or times < 1:
            return
        if one.until_ms < now_ms:
            self._requested(one, 1, now_ms)
            one.until_ms = now_ms + one.given_ms
            one.counts.lifetimes += 1
            times -= 1
        self._requested(one, times, now_ms)

    def changed(self, query: Hashable, *, now_ms: int) -> None:
        """Note that a query's result has changed."""
        for result in self._results.get(query, ()):
            one = self._followed[result]
            if one.until_ms >= now_ms:
                one.counts.invalidations += 1
                one.exposed_until_ms = min(one.until_ms, now_ms + self._delta_ms)
            one.until_ms = -1

    def withdrawn(self, query: Hashable) -> None:
        """Note that a query is no longer guarded, though nothing was written."""
        for result in self._results.get(query, ()):
            self._followed[result].until_ms = -1

    def _requested(self, one: _Followed, times: int, now_ms: int) -> None:
        one.counts.requests += times
        if one.until_ms >= now_ms:
            one.counts.hits += times
        if one.exposed_until_ms >= now_ms:
            one.counts.stale += times

    def _forget(self) -> None:
        result, one = self._followed.popitem(last=False)
        for query in one.queries:
            others = self._results[query]
            others.discard(result)
            if not others:
                del self._results[query]
