"""Queue of queries by due time: equal due times and shapes are given together, and a query is never given twice at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sortedcontainers import SortedSet

from quaestor.continuous.schedule.periods import SECOND, Every, Period
from quaestor.continuous.schedule.stretching import Stretching

QUARANTINE_AFTER: Final = 5
"""Errors of a query in a row after which it is no longer given."""
_FIRST_PAUSE: Final = SECOND
_LONGEST_PAUSE: Final = 3_600 * SECOND


@dataclass(slots=True, kw_only=True)
class Scheduled:
    """Query in the schedule. Instants and lengths in microseconds.

    shape: queries of the same shape can run as one plan.
    at_most: the longest interval that its user accepts; None: any.
    resistance: see `Schedule.put`.
    due: next run.
    running: whether it was given, and has not ended.
    since: when the last run began.
    errors: in a row, up to now.
    quarantined: reason for which it is not given any more; empty: it is given.
    late: how much later than due the last run began.
    missed: first due time that passed while it ran; None: none passed.
    """

    name: str
    period: Period
    shape: str
    at_most: int | None = None
    resistance: int = 1
    due: int
    running: bool = False
    since: int = 0
    errors: int = 0
    quarantined: str = ""
    late: int = 0
    missed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Queries to run together.

    overdue: names of the queries that begin later than their users accept.
    """

    at: int
    shape: str
    names: tuple[str, ...]
    overdue: tuple[str, ...] = field(default=())


class Schedule:
    """Schedule. O(log n) for each change. Not thread-safe: one task owns it."""

    def __init__(self) -> None:
        self._entries: dict[str, Scheduled] = {}
        self._queue: SortedSet = SortedSet()
        self._stretching = Stretching()
        self._overruns: dict[str, Stretching] = {}
        self._now: int | None = None

    @property
    def factor(self) -> int:
        """Largest factor by which periods are stretched at present; 1: not at all."""
        return max(self._stretching.factor, *(own.factor for own in self._overruns.values()), 1)

    def entries(self) -> Iterable[Scheduled]:
        """Return all queries, in the order of their names."""
        return [self._entries[name] for name in sorted(self._entries)]

    def get(self, name: str) -> Scheduled | None:
        """Return a query; None: it is not in the schedule."""
        return self._entries.get(name)

    def next_due(self) -> int | None:
        """Return the instant at which `take` gives something; None: nothing waits."""
        return self._queue[0][0] if self._queue else None

    def put(
        self, name: str, period: Period, shape: str, *, due: int, at_most: int | None = None, resistance: int = 1
    ) -> None:
        """Add a query, or replace its period, shape and due time. Errors and quarantine of before are forgotten.

        A running query keeps running; the new period begins when it ends.

        resistance: the query's period is stretched by the factor divided by this.
        """
        before = self._entries.get(name)
        if before is not None:
            self._queue.discard((before.due, name))
        entry = Scheduled(
            name=name,
            period=period,
            shape=shape,
            at_most=at_most,
            resistance=resistance,
            due=due,
            running=before is not None and before.running,
            since=0 if before is None else before.since,
        )
        self._entries[name] = entry
        if not entry.running:
            self._queue.add((due, name))

    def remove(self, name: str) -> None:
        """Remove a query. An unknown name is no error."""
        entry = self._entries.pop(name, None)
        self._overruns.pop(name, None)
        if entry is not None:
            self._queue.discard((entry.due, name))

    def take(self, now: int) -> list[Due]:
        """Return all queries that are due, earliest first; the same due time and shape together.

        Given queries count as running. A clock that went back moves the due times back too.
        """
        if self._now is not None and now < self._now:
            self._move_back(now)
        self._now = now
        groups: dict[tuple[int, str], list[Scheduled]] = {}
        while self._queue and self._queue[0][0] <= now:
            due, name = self._queue.pop(0)
            entry = self._entries[name]
            entry.running, entry.since, entry.late = True, now, now - (due if entry.missed is None else entry.missed)
            groups.setdefault((due, entry.shape), []).append(entry)
            if isinstance(entry.period, Every):
                self._stretching.note(now - due, self._length(entry), now)
        return [
            Due(
                at=due,
                shape=shape,
                names=tuple(entry.name for entry in group),
                overdue=tuple(
                    entry.name for entry in group if entry.at_most is not None and entry.late > entry.at_most
                ),
            )
            for (due, shape), group in groups.items()
        ]

    def began(self, name: str, now: int) -> bool:
        """Note that a given query begins only now, because it had to wait; return whether the wait made it overdue."""
        entry = self._entries.get(name)
        if entry is None or not entry.running:
            return False
        entry.since = now
        before, entry.late = entry.late, max(entry.late, now - entry.due)
        if isinstance(entry.period, Every):
            self._stretching.note(max(0, now - entry.due), self._length(entry), now)
        return entry.at_most is not None and before <= entry.at_most < entry.late

    def factor_of(self, name: str) -> int:
        """Return the factor by which the period of a query is stretched at present."""
        entry = self._entries.get(name)
        return 1 if entry is None else self._factor(entry)

    def done(self, name: str, now: int) -> None:
        """Note that a query has run: it is due again at the next instant of its period. Instants in between are left out.

        The next run counts as late from the first of them. A query that runs for longer than its period stretches its own
        period only: its overrun delays no other query.
        """
        entry = self._entries.get(name)
        if entry is not None and entry.running:
            missed = self._next(entry, max(entry.due, entry.since))
            entry.missed = missed if missed <= now else None
            self._note_overrun(entry, now - missed, now)
            entry.running, entry.errors = False, 0
            self._wait(entry, self._next(entry, now))

    def failed(self, name: str, now: int, reason: str, *, passes: bool) -> bool:
        """Note that a query has failed; return whether it is quarantined now.

        passes: the failure may pass without a change of the query, as when a storage is away. The query then waits longer
            and longer, and is never quarantined.
        """
        entry = self._entries.get(name)
        if entry is None or not entry.running:
            return False
        entry.running, entry.missed = False, None
        entry.errors += 1
        if not passes and entry.errors >= QUARANTINE_AFTER:
            entry.quarantined = reason
            return True
        pause = _pause(entry)
        self._wait(entry, now + pause if passes else max(now + pause, self._next(entry, now)))
        return False

    def _move_back(self, now: int) -> None:
        """Let no query wait longer than its period, or its pause after an error, from now on."""
        for due, name in list(self._queue):
            entry = self._entries[name]
            latest = max(self._next(entry, now), now + _pause(entry) if entry.errors else 0)
            if due > latest:
                self._queue.discard((due, name))
                self._wait(entry, latest)
        for entry in self._entries.values():
            entry.since = min(entry.since, now)

    def _note_overrun(self, entry: Scheduled, overrun: int, now: int) -> None:
        """Adapt the query's own factor; overrun: time between the first due time that it missed and its end."""
        if not isinstance(entry.period, Every) or (overrun <= 0 and entry.name not in self._overruns):
            return
        own = self._overruns.setdefault(entry.name, Stretching())
        own.note(max(0, overrun), entry.period.length * self._factor(entry), now)
        if own.factor == 1 and overrun <= 0:
            del self._overruns[entry.name]

    def _next(self, entry: Scheduled, now: int) -> int:
        return entry.period.next(now, self._factor(entry))

    def _factor(self, entry: Scheduled) -> int:
        """Return the factor of a query's period: load does not stretch a cron expression."""
        if not isinstance(entry.period, Every):
            return 1
        own = self._overruns.get(entry.name)
        factor = max(1, self._stretching.factor // entry.resistance, own.factor // entry.resistance if own else 1)
        while factor > 1 and entry.at_most is not None and entry.period.length * factor > entry.at_most:
            factor //= 2
        return factor

    def _length(self, entry: Scheduled) -> int:
        assert isinstance(entry.period, Every)
        return entry.period.length * max(1, self._stretching.factor // entry.resistance)

    def _wait(self, entry: Scheduled, due: int) -> None:
        entry.due = due
        self._queue.add((due, entry.name))


def _pause(entry: Scheduled) -> int:
    """Return the pause after the errors of a query."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE << min(entry.errors, 16))
