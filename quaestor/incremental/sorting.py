"""Window stage: ordered results with limit and offset, kept by a stretch of records around the window.

Known are all records from the first in the order up to a *horizon*: those of offset, window, and the slack behind it. A
removal before or in the window pulls in the first record behind it. An insertion pushes the last one out. Both are indirect
events. When the slack is used up, the following records are unknown. The result then stands still until it is renewed, or
until insertions before the horizon fill the window again. Without a horizon all matching records are known.

Sources: Wingerath's thesis, section 3.3.2 (sorted queries with limit and offset); Yi et al., "Efficient maintenance of
materialized top-k views" (ICDE 2003). O(log n) for each change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sortedcontainers import SortedList

from quaestor.incremental.changes import Change, Row, same_row
from quaestor.incremental.events import ResultEvent, Shown, differences
from quaestor.model import MatchType
from quaestor.query.sorting import SortKey

Place = tuple[SortKey, Hashable]
"""Place of a row: its sort key, and among equals its own key."""

_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowRules:
    """Order, offset and limit of a window.

    sort_key: returns a row's sort key.
    present: returns the row in its shown form.
    skip: offset.
    limit: None for none.
    """

    sort_key: Callable[[Row], SortKey]
    present: Callable[[Row], Any]
    skip: int = 0
    limit: int | None = None

    @property
    def end(self) -> int:
        """First position behind the window."""
        return _UNLIMITED if self.limit is None else self.skip + self.limit


class _Known(NamedTuple):
    """Known row, with its place in the order."""

    place: Place
    id: Any
    document: Any


class Window:
    """Ordered result: offset, window and slack. Not thread-safe."""

    def __init__(
        self,
        rules: WindowRules,
        *,
        most_known: int | None = None,
        dropped: Callable[[Hashable], None] = lambda key: None,
    ) -> None:
        """Begin without rows.

        most_known: number of rows to keep, at least up to the end of the window. None: all, and there never is a horizon.
        dropped: called with the key of each row beyond the horizon, which is not known here any more.
        """
        self._rules = rules
        self._most_known = None if most_known is None else max(most_known, rules.end)
        self._dropped = dropped
        self._order: SortedList[Place] = SortedList()
        self._known: dict[Hashable, _Known] = {}
        self._horizon: Place | None = None
        self._still: list[Shown] | None = None

    @property
    def lacking(self) -> bool:
        """Whether the slack is used up: the present window is unknown, and `shown` is the last known one."""
        return self._still is not None

    @property
    def slack(self) -> int | None:
        """Number of removals that the result survives without a read; None: any number."""
        return None if self._horizon is None else len(self._order) - self._rules.end

    def load(self, changes: Sequence[Change], *, complete: bool) -> None:
        """Begin with these rows.

        complete: no others match; otherwise they are the first ones in the order.
        """
        for change in changes:
            self._put(change, self._new(change))
        if not complete and self._order:
            self._horizon = self._order[-1]
        self._trim()
        if self._short():
            self._still = self._window()

    def feed(self, changes: Sequence[Change]) -> list[ResultEvent]:
        """Apply changes. The events lead from `shown` before to `shown` after. If one fails, none is applied.

        Several changes at once give their net effect where one could push out a row that another pulls in.
        """
        prepared = [(change, self._new(change)) for change in changes]
        if self._still is None and (len(changes) == 1 or (self._rules.limit is None and not self._rules.skip)):
            return [event for change, new in prepared for event in self._events_of(change, new)]
        before = self._window() if self._still is None else self._still
        for change, new in prepared:
            self._put(change, new)
        self._trim()
        if self._short():
            self._still = before
            return []
        self._still = None
        return differences(before, self._window(), ordered=True)

    def holds(self, key: Hashable) -> bool:
        """Whether the row is known: in the offset, the window or the slack."""
        return key in self._known

    def shown(self) -> list[Shown]:
        """Return the result in order. O(its length)."""
        return self._window() if self._still is None else list(self._still)

    def _events_of(self, change: Change, new: _Known | None) -> list[ResultEvent]:
        rules, order = self._rules, self._order
        old = self._known.get(change.key)
        if old is None and new is None:
            return []
        was = None if old is None else order.index(old.place)
        if old is not None and new is None and self._horizon is not None and len(order) <= rules.end:
            self._still = self._window()
        if old is not None:
            del order[was]
            del self._known[change.key]
        now = None if new is None else order.bisect_left(new.place)
        events = [] if self._still is not None else self._events(old, new, was, now)
        if new is not None:
            order.add(new.place)
            self._known[change.key] = new
        self._trim()
        return events

    def _events(self, old: _Known | None, new: _Known | None, was: int | None, now: int | None) -> list[ResultEvent]:
        """Return the events of one moving row, while the row itself is out of the order.

        was, now: its positions in the whole order.
        """
        skip, end = self._rules.skip, self._rules.end
        leaving: list[tuple[int, _Known]] = []
        entering: list[tuple[int, _Known]] = []
        for position in {skip - 1, skip, end - 2, end - 1, end}:
            if not 0 <= position < len(self._order):
                continue
            before = position + (was is not None and was <= position)
            after = position + (now is not None and now <= position)
            if (skip <= before < end) != (skip <= after < end):
                row = self._known[self._order[position][1]]
                if skip <= before < end:
                    leaving.append((before - skip, row))
                else:
                    entering.append((after - skip, row))
        in_place: list[ResultEvent] = []
        shown_before = old is not None and was is not None and skip <= was < end
        shown_after = new is not None and now is not None and skip <= now < end
        if shown_before and shown_after and old and new and was is not None and now is not None:
            if was != now or not same_row(old.document, new.document):
                kind = MatchType.CHANGE if was == now else MatchType.CHANGE_INDEX
                in_place.append(_event(kind, new, index=now - skip, previous=was - skip))
        elif shown_before and old and was is not None:
            leaving.append((was - skip, new or old))
        elif shown_after and new and now is not None:
            entering.append((now - skip, new))
        leaving.sort(key=lambda pair: -pair[0])
        entering.sort(key=lambda pair: pair[0])
        return [
            *(_event(MatchType.REMOVE, row, previous=index) for index, row in leaving),
            *in_place,
            *(_event(MatchType.ADD, row, index=index) for index, row in entering),
        ]

    def _new(self, change: Change) -> _Known | None:
        """Return the row in its kept form, or None if it is absent or lies beyond the horizon."""
        if change.after is None:
            return None
        place = (self._rules.sort_key(change.after), change.key)
        if self._horizon is not None and place > self._horizon:
            self._dropped(change.key)
            return None
        return _Known(place, change.id, self._rules.present(change.after))

    def _put(self, change: Change, new: _Known | None) -> None:
        old = self._known.pop(change.key, None)
        if old is not None:
            self._order.remove(old.place)
        if new is not None:
            self._order.add(new.place)
            self._known[change.key] = new

    def _trim(self) -> None:
        while self._most_known is not None and len(self._order) > self._most_known:
            _, key = self._order.pop()
            del self._known[key]
            self._dropped(key)
            self._horizon = self._order[-1] if self._order else None

    def _short(self) -> bool:
        return self._horizon is not None and len(self._order) < self._rules.end

    def _window(self) -> list[Shown]:
        rules = self._rules
        rows = (self._known[place[1]] for place in self._order.islice(rules.skip, min(rules.end, len(self._order))))
        return [Shown(row.place[1], row.id, row.document) for row in rows]


def _event(kind: MatchType, row: _Known, *, index: int | None = None, previous: int | None = None) -> ResultEvent:
    return ResultEvent(match_type=kind, key=row.id, document=row.document, index=index, previous_index=previous)
