"""Propagation limit: of several changes of a record within an interval, subscribers receive the newest.

Only changes in place wait. Additions, removals and moves are sent at once, so the order of the sent rows is always the order of
the result. A removal drops the waiting change of its record; a move carries the newest state. A waiting change therefore needs
nothing but the present position of its record, which later additions, removals and moves shift.

Source: Wingerath's thesis, appendix D (`collapse`); here once for all subscribers of a query.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from itertools import takewhile

from quaestor.incremental import ResultEvent
from quaestor.model import MatchType
from quaestor.query.bson_order import order_key
from quaestor.realtime.due_times import DueTimes


class PropagationLimit:
    """Propagation limit of one query. Not thread-safe.

    O(log(waiting changes)) for each event; O(waiting changes) for an event that shifts positions in an ordered result.

    interval_ms: the shortest time between two changes in place of one record.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._sent_ms: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, ResultEvent] = {}
        self._due: DueTimes[Hashable] = DueTimes()

    @property
    def due_ms(self) -> int | None:
        """Moment at which the next waiting change may be sent; None: no change waits."""
        return self._due.earliest_ms

    def offer(self, events: Iterable[ResultEvent], *, now_ms: int) -> list[ResultEvent]:
        """Take the events of one change of the result; return the events to send now, due ones first."""
        if not self._interval_ms:
            return list(events)
        sent = self.due(now_ms=now_ms)
        for event in events:
            key = order_key(event.key)
            if event.match_type is MatchType.CHANGE and key in self._sent_ms:
                self._waiting[key] = event
                self._due.schedule(key, self._sent_ms[key] + self._interval_ms)
                continue
            self._withdraw(key)
            self._shift(event)
            self._note(key, event, now_ms)
            sent.append(event)
        return sent

    def due(self, *, now_ms: int) -> list[ResultEvent]:
        """Return the waiting changes whose interval is over."""
        over = list(takewhile(lambda key: now_ms - self._sent_ms[key] >= self._interval_ms, self._sent_ms))
        due = []
        for key in over:
            del self._sent_ms[key]
            if (event := self._withdraw(key)) is not None:
                self._sent_ms[key] = now_ms
                due.append(event)
        return due

    def clear(self) -> None:
        """Forget everything: all subscribers receive the full result."""
        self._sent_ms.clear()
        self._waiting.clear()
        self._due.clear()

    def flush(self, *, now_ms: int) -> list[ResultEvent]:
        """Return every waiting change, whatever its interval: a message with the full result follows."""
        flushed, self._waiting = list(self._waiting.values()), {}
        self._due.clear()
        for event in flushed:
            self._note(order_key(event.key), event, now_ms)
        return flushed

    def _withdraw(self, key: Hashable) -> ResultEvent | None:
        self._due.cancel(key)
        return self._waiting.pop(key, None)

    def _note(self, key: Hashable, event: ResultEvent, now_ms: int) -> None:
        """Note a sent event. The newest note is the last, so `due` reads the oldest ones only."""
        self._sent_ms.pop(key, None)
        if event.match_type is not MatchType.REMOVE:
            self._sent_ms[key] = now_ms

    def _shift(self, event: ResultEvent) -> None:
        """Shift the positions of the waiting changes by an event that is sent before them."""
        was = event.previous_index if event.match_type is not MatchType.ADD else None
        now = event.index if event.match_type is not MatchType.REMOVE else None
        if was == now:
            return
        for key, waiting in self._waiting.items():
            index = waiting.index
            if index is None:
                continue
            index -= was is not None and was < index
            index += now is not None and now <= index
            if index != waiting.index:
                self._waiting[key] = replace(waiting, index=index, previous_index=index)
