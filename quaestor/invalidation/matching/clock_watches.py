"""Clock watches of a node: for registrations whose query follows the clock, the next instant at which a record changes its truth.

A registration brings the first instant among the records as they were read. Each later write may bring an earlier one. The
wheel, a heap of instants, fires a registration when its instant has come. Not thread-safe. No clock: time is an argument.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from bson import encode

from quaestor.clock import ClockWatch
from quaestor.invalidation.matching.entities import ActiveQuery, Filter, LiveRegistration
from quaestor.invalidation.matching.index import QueryIndex
from quaestor.invalidation.matching.memory_estimates import PASSING, watch_bytes
from quaestor.invalidation.matching.retention import Retained
from quaestor.model import Registration
from quaestor.planning.access_paths import access_paths
from quaestor.planning.timed_conditions import TimedCondition
from quaestor.query.compiled import compile_query

_SPARE: Final = 64


class Watch:
    """Watch of one registration.

    passing: next instants of records written since, by record hash.
    item: the filter that a record passes if it may change before the lease ends.
    bytes: estimated memory without the records written since.
    """

    __slots__ = ("_condition", "_horizon_ms", "_matches", "bytes", "item", "known", "live", "passing", "paths")

    def __init__(self, live: LiveRegistration, registration: Registration, known: ClockWatch) -> None:
        """Raises QueryError."""
        self.live = live
        self.known = known
        self.passing: dict[int, int] = {}
        self._horizon_ms = registration.expires_at_ms
        self._condition = TimedCondition(registration.query.clock or {})
        condition = self._condition.may_change(after_ms=known.from_ms, until_ms=self._horizon_ms)
        may_change = compile_query(condition)
        self._matches = may_change.matches
        self.item = Filter(may_change.identity, b"")
        self.item.access = None
        self.paths = access_paths(may_change.root)
        self.bytes = watch_bytes(len(encode(condition)), len(self.paths))

    def is_due(self, now_ms: int) -> bool:
        """Whether some record has changed its truth since the read. O(records written since)."""
        return 0 < self.known.until_ms <= now_ms or any(at_ms <= now_ms for at_ms in self.passing.values())

    def next_ms(self, entry: Retained) -> int | None:
        """Return the next instant of a written record; None: it has none."""
        record = entry.image.after
        if record is None or entry.image.version <= self.known.since:
            return None
        try:
            if not self._matches(record):
                return None
        except Exception:  # an undecided filter: the candidates decide
            pass
        return self._condition.next_change(record, after_ms=self.known.from_ms, until_ms=self._horizon_ms)


class _Instant(NamedTuple):
    """Instant on the wheel.

    number: decides among equal instants.
    record: hash of the record that brings it; None: the registration brought it.
    """

    at_ms: int
    number: int
    watch: Watch
    record: int | None

    @property
    def counts(self) -> bool:
        """Whether the registration's watch still waits for it."""
        return self.record is None or self.watch.passing.get(self.record) == self.at_ms


class _Watched:
    """Watches of one namespace."""

    __slots__ = ("by_item", "index")

    def __init__(self) -> None:
        self.index = QueryIndex()
        self.by_item: dict[Filter, Watch] = {}


class ClockWatches:
    """Watches of a node, and the wheel of their instants.

    by_live: empty while no registration follows the clock.
    """

    __slots__ = ("_by_namespace", "_charge", "_numbers", "_passing", "_waiting", "_wheel", "by_live")

    def __init__(self, charge: Callable[[ActiveQuery, int], None]) -> None:
        """Watch nothing yet.

        charge: adds estimated bytes to the account of a query; negative numbers take them off.
        """
        self._charge = charge
        self._by_namespace: dict[str, _Watched] = {}
        self.by_live: dict[LiveRegistration, Watch] = {}
        self._passing: dict[int, list[Watch]] = {}
        self._wheel: list[_Instant] = []
        self._waiting = 0
        self._numbers = itertools.count()

    def add(self, watch: Watch) -> None:
        """Watch a registration from now on. O(log n)."""
        watched = self._by_namespace.setdefault(watch.live.query.rules.namespace, _Watched())
        watched.index.add(watch.item, watch.paths)
        watched.by_item[watch.item] = watch
        self.by_live[watch.live] = watch
        self._charge(watch.live.query, watch.bytes)
        if watch.known.until_ms:
            self._note(watch.known.until_ms, watch, None)

    def remove(self, live: LiveRegistration) -> None:
        """Forget the watch of a registration, if it has one. O(records written since)."""
        watch = self.by_live.pop(live, None)
        if watch is None:
            return
        namespace = live.query.rules.namespace
        watched = self._by_namespace[namespace]
        watched.index.remove(watch.item)
        del watched.by_item[watch.item]
        if not watched.by_item:
            del self._by_namespace[namespace]
        for identity in watch.passing:
            self._passed(identity, watch)
        self._waiting -= len(watch.passing)
        self._charge(live.query, -watch.bytes - PASSING * len(watch.passing))
        self._tidy()

    def written(self, entry: Retained, *, now_ms: int) -> list[LiveRegistration]:
        """Take in a write; return the registrations that are due by it. O(watches whose filter it may pass)."""
        for watch in self._passing.pop(entry.identity, ()):
            self._waits_no_more(watch, entry.identity)
        watched = self._by_namespace.get(entry.image.namespace)
        if watched is None or entry.image.after is None:
            return []
        watches = [watched.by_item[item] for item in dict.fromkeys(watched.index.candidates(entry.image.after))]
        return [watch.live for watch in watches if self._take(watch, entry, now_ms)]

    def caught_up(self, live: LiveRegistration, entries: Iterable[Retained], *, now_ms: int) -> bool:
        """Take in the writes between a read and its registration; return whether it is due."""
        watch = self.by_live[live]
        for entry in entries:
            if entry.image.namespace == live.query.rules.namespace:
                if self._waits_no_more(watch, entry.identity):
                    self._passed(entry.identity, watch)
                self._take(watch, entry, now_ms)
        return watch.is_due(now_ms)

    def due(self, now_ms: int) -> list[LiveRegistration]:
        """Return the registrations whose instant has come. Forget them before the next call. O(log n) each."""
        due: dict[LiveRegistration, None] = {}
        while self._wheel and self._wheel[0].at_ms <= now_ms:
            watch = heappop(self._wheel).watch
            if watch.live in self.by_live and watch.is_due(now_ms):
                due[watch.live] = None
        return list(due)

    @property
    def next_ms(self) -> int | None:
        """Next instant on the wheel; None: there is none."""
        return self._wheel[0].at_ms if self._wheel else None

    def _take(self, watch: Watch, entry: Retained, now_ms: int) -> bool:
        at_ms = watch.next_ms(entry)
        if at_ms is None:
            return False
        watch.passing[entry.identity] = at_ms
        self._waiting += 1
        self._charge(watch.live.query, PASSING)
        self._passing.setdefault(entry.identity, []).append(watch)
        self._note(at_ms, watch, entry.identity)
        return at_ms <= now_ms

    def _waits_no_more(self, watch: Watch, identity: int) -> bool:
        """Forget the instant of a record; return whether the watch had it."""
        if watch.passing.pop(identity, None) is None:
            return False
        self._waiting -= 1
        self._charge(watch.live.query, -PASSING)
        return True

    def _note(self, at_ms: int, watch: Watch, record: int | None) -> None:
        heappush(self._wheel, _Instant(at_ms, next(self._numbers), watch, record))
        self._tidy()

    def _tidy(self) -> None:
        """Drop instants that no longer count, once they are the larger part of the wheel: O(1) a write in the long run."""
        if len(self._wheel) <= 2 * (len(self.by_live) + self._waiting) + _SPARE:
            return
        counting = {
            (id(instant.watch), instant.record): instant
            for instant in self._wheel
            if instant.watch.live in self.by_live and instant.counts
        }
        self._wheel = list(counting.values())
        heapify(self._wheel)

    def _passed(self, identity: int, watch: Watch) -> None:
        others = [other for other in self._passing.get(identity, ()) if other is not watch]
        if others:
            self._passing[identity] = others
        else:
            self._passing.pop(identity, None)
