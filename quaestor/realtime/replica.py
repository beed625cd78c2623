"""Replica of a subscribed query's result in an app process: taken over from its stage once, then kept by the changes.

No I/O, not thread-safe.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from quaestor.errors import QuaestorError
from quaestor.incremental import ResultEvent
from quaestor.incremental.events import Shown as Row
from quaestor.incremental.events import differences
from quaestor.model import MatchType
from quaestor.query.bson_order import order_key
from quaestor.realtime.messages import FullResult, ResultChange


class OutOfStepError(QuaestorError):
    """Error that a change does not follow on what is known: changes before it were missed.

    applied: the events that could be applied.
    """

    applied: tuple[ResultEvent, ...] = ()


class Replica:
    """Replica of one result. Every change is applied once, in order, whatever is delivered again.

    known: whether there is a result.
    epoch, sequence: of the newest change that it contains.
    """

    def __init__(self, subscription_id: str) -> None:
        self.known = False
        self.epoch = ""
        self.sequence = 0
        self._subscription_id = subscription_id
        self._ordered = False
        self._list: list[Row] = []
        self._rows: dict[Hashable, Row] = {}

    def reset(self, subscription_id: str) -> None:
        """Distrust what is known: the next full result for this subscription takes its place, told as differences."""
        self._subscription_id = subscription_id
        self.known, self.epoch, self.sequence = False, "", 0

    def rows(self) -> tuple[tuple[Any, Any], ...]:
        """Key and document of each row, in order if the query has one. O(their number)."""
        return tuple((row.id, row.document) for row in self._current())

    def replace(self, full: FullResult) -> list[ResultEvent] | None:
        """Take the full result over, if it is news; the events lead to it from what was known. None: it is not."""
        named = full.subscription_ids is not None and self._subscription_id in full.subscription_ids
        newer = (full.epoch, full.sequence) > (self.epoch, self.sequence)
        if not (newer if self.known else named):
            return None
        rows = [Row(order_key(key), key, document) for key, document in full.rows]
        events = differences(self._current(), rows, ordered=full.ordered)
        self.known, self.epoch, self.sequence = True, full.epoch, full.sequence
        self._ordered = full.ordered
        self._list = rows if full.ordered else []
        self._rows = {} if full.ordered else {row.key: row for row in rows}
        return events

    def apply(self, change: ResultChange) -> tuple[ResultEvent, ...]:
        """Apply one change; one that is contained already is passed over, and those of other epochs.

        Raises OutOfStepError if it does not follow on what is known; the full result is needed then.
        """
        if not self.known or change.epoch != self.epoch or change.sequence <= self.sequence:
            return ()
        if change.sequence != self.sequence + 1:
            raise OutOfStepError(f"step {change.sequence} does not follow on step {self.sequence}")
        for place, event in enumerate(change.events):
            try:
                if self._ordered:
                    self._move(event)
                else:
                    self._put(event)
            except OutOfStepError as error:
                error.applied = change.events[:place]
                raise
        self.sequence = change.sequence
        return change.events

    def _current(self) -> list[Row]:
        return self._list if self._ordered else list(self._rows.values())

    def _put(self, event: ResultEvent) -> None:
        key = order_key(event.key)
        if (key in self._rows) is (event.match_type is MatchType.ADD):
            raise OutOfStepError(
                f"{event.match_type.value} of a record that is {'not ' * (key not in self._rows)}there"
            )
        if event.match_type is MatchType.REMOVE:
            del self._rows[key]
        else:
            self._rows[key] = Row(key, event.key, event.document)

    def _move(self, event: ResultEvent) -> None:
        row = Row(order_key(event.key), event.key, event.document)
        if event.match_type is not MatchType.ADD:
            place = event.previous_index
            if place is None or not 0 <= place < len(self._list) or self._list[place].key != row.key:
                raise OutOfStepError(f"{event.match_type.value} of a record that is not at {place}")
            del self._list[place]
        if event.match_type is not MatchType.REMOVE:
            if event.index is None or not 0 <= event.index <= len(self._list):
                raise OutOfStepError(f"{event.match_type.value} of a record to {event.index}, behind the end")
            self._list.insert(event.index, row)
