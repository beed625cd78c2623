"""Checker of served responses against the database's history. Verdicts follow from recorded moments and numbers alone.

A response has a request time r and an answer time t. The response is right if the database was in the shown state, with all
records together, at one moment between r - bound and t. The database's state is known to lie between the begin and the
acknowledgement of a write, and the decision to serve between r and t; each is taken in favour of the response, so a verdict
against it is certain.

A second rule: a worker may have processed an invalidation of the page when the request comes in. That worker must not answer
with the state before the write that caused the invalidation, however recent the write.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.setups.faults.history import History, Span, intersection

CLOCK_S = 0.002
"""Moments travel in whole milliseconds, rounded down: once for the tick, once for the look at the clock."""
LOOK_BACK_S = 120.0
"""A state that was not there for so long was never there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One response. shown: the records in it with their numbers. group: the list it is, None: the page of one record.
    known: of this page, by record, the version of the newest write whose invalidation the worker had processed before.
    agrees: whether a record (its key) in a state (its number) agrees with the response, where that is not said by `shown`.
    together: whether all records in these states do, for what cannot be said of each by itself."""

    worker: int
    group: int | None
    key: int | None
    shown: Mapping[int, int]
    asked_s: float
    answered_s: float
    hit: bool
    known: Mapping[int, int] = field(default_factory=dict)
    agrees: Callable[[int, int], bool] | None = None
    together: Callable[[Sequence[int]], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A wrong response: "stale" (by how many seconds more than the bound), "never" (no such state within two
    minutes), "known"."""

    why: str
    served: Served
    by_s: float = 0.0


class Checker:
    """Safe to use from several threads. bound_s: the announced staleness bound."""

    def __init__(self, history: History, *, bound_s: float, keep: int = 50) -> None:
        self._history = history
        self._bound_s = bound_s
        self._lock = threading.Lock()
        self._keep = keep
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.stalest_s = 0.0

    def check(self, served: Served) -> Violation | None:
        """O(records the page could show x writes within the bound)."""
        since = served.asked_s - self._bound_s - CLOCK_S
        moments = self._moments(served, since, floors={})
        violation = None
        if not moments:
            ever = self._moments(served, since - LOOK_BACK_S, floors={})
            by_s = since - max(end for _, end in ever) if ever else 0.0
            violation = Violation(why="stale" if ever else "never", served=served, by_s=by_s)
        elif served.known:
            floors = {key: self._history.records[key].before(version) for key, version in served.known.items()}
            if not self._moments(served, since, floors):
                violation = Violation(why="known", served=served)
        with self._lock:
            self.counts["responses"] += 1
            self.counts["hits"] += served.hit
            self.counts["after a known invalidation"] += bool(served.known)
            if violation is not None:
                self.counts[f"violations: {violation.why}"] += 1
                self.violations = [*self.violations, violation][: self._keep]
            else:
                age_s = served.asked_s - max(end for _, end in moments)
                self.stalest_s = max(self.stalest_s, age_s)
        return violation

    def take_stalest_s(self) -> float:
        """How long ago the database had left the state of the stalest response since the last call, at least; 0: none was."""
        with self._lock:
            stalest_s, self.stalest_s = self.stalest_s, 0.0
        return stalest_s

    def _moments(self, served: Served, since: float, floors: Mapping[int, int]) -> list[Span]:
        moments: list[Span] = [(since, served.answered_s)]
        if served.together is not None:
            return list(self._together(served.together, moments, floors, ()))
        keys = range(len(self._history.records)) if served.group is not None else (served.key or 0,)
        for key in keys:
            spans = self._history.records[key].spans(self._wanted(served, key, floors.get(key, -1)), since=since)
            moments = intersection(moments, list(spans))
            if not moments:
                break
        return moments

    def _together(
        self,
        agree: Callable[[Sequence[int]], bool],
        moments: list[Span],
        floors: Mapping[int, int],
        numbers: tuple[int, ...],
    ) -> Iterator[Span]:
        """The moments of all combinations of states that agree, record by record."""
        key = len(numbers)
        if key == len(self._history.records):
            yield from moments if agree(numbers) else ()
            return
        for number, span in list(self._history.records[key].states(since=moments[0][0])):
            if number > floors.get(key, -1) and (left := intersection(moments, [span])):
                yield from self._together(agree, left, floors, (*numbers, number))

    def _wanted(self, served: Served, key: int, floor: int) -> Callable[[int], bool]:
        """Which numbers of this record agree with the response."""
        shown, group, group_of = served.shown.get(key), served.group, self._history.group_of
        if (agrees := served.agrees) is not None:
            return lambda number: agrees(key, number) and number > floor
        if group is None:
            return lambda number: number == shown and number > floor
        if shown is None:
            return lambda number: group_of(key, number) != group and number > floor
        return lambda number: number == shown and group_of(key, number) == group and number > floor
