"""Rows of a result that is kept by its events. No I/O, not thread-safe."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from quaestor.errors import QuaestorError
from quaestor.incremental import ResultEvent
from quaestor.incremental.events import Shown as Row
from quaestor.model import MatchType
from quaestor.query.bson_order import order_key


class OutOfStepError(QuaestorError):
    """Error that a change does not follow on the rows: changes before it were missed.

    applied: the events that could be applied.
    """

    applied: tuple[ResultEvent, ...] = ()


class ResultRows:
    """Rows of one result.

    ordered: whether the rows have an order. Events then carry places.
    """

    def __init__(self, rows: Iterable[tuple[Any, Any]] = (), *, ordered: bool = False) -> None:
        """rows: key and document of each, in order if `ordered`."""
        first = [Row(order_key(key), key, document) for key, document in rows]
        self.ordered = ordered
        self._list: list[Row] = first if ordered else []
        self._rows: dict[Hashable, Row] = {} if ordered else {row.key: row for row in first}

    def __len__(self) -> int:
        return len(self._list) or len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        """The rows, in order if there is one."""
        return iter(self._list if self.ordered else self._rows.values())

    def apply(self, event: ResultEvent) -> Row | None:
        """Apply one event. Return the row as it was before; None for a new one.

        Raises OutOfStepError if the event does not fit. O(1); with an order O(number of rows).
        """
        return self._move(event) if self.ordered else self._put(event)

    def _put(self, event: ResultEvent) -> Row | None:
        key = order_key(event.key)
        if (key in self._rows) is (event.match_type is MatchType.ADD):
            raise OutOfStepError(
                f"{event.match_type.value} of a record that is {'not ' * (key not in self._rows)}there"
            )
        before = self._rows.get(key)
        if event.match_type is MatchType.REMOVE:
            del self._rows[key]
        else:
            self._rows[key] = Row(key, event.key, event.document)
        return before

    def _move(self, event: ResultEvent) -> Row | None:
        row, before = Row(order_key(event.key), event.key, event.document), None
        if event.match_type is not MatchType.ADD:
            place = event.previous_index
            if place is None or not 0 <= place < len(self._list) or self._list[place].key != row.key:
                raise OutOfStepError(f"{event.match_type.value} of a record that is not at {place}")
            before = self._list.pop(place)
        if event.match_type is not MatchType.REMOVE:
            if event.index is None or not 0 <= event.index <= len(self._list):
                raise OutOfStepError(f"{event.match_type.value} of a record to {event.index}, behind the end")
            self._list.insert(event.index, row)
        return before
