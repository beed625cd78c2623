"""Last step of a result without order: changes of rows become events for subscribers. (With an order: sorting.py.)"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from quaestor.incremental.changes import Change, Row, same_row
from quaestor.incremental.events import ResultEvent, Shown
from quaestor.model import MatchType


class UnorderedView:
    """Result without order: sends add, change and remove. Not thread-safe. O(1) for each change."""

    def __init__(self, present: Callable[[Row], Any]) -> None:
        self._present = present
        self._rows: dict[Hashable, Shown] = {}

    def load(self, changes: Sequence[Change]) -> None:
        """Begin with these rows."""
        self.feed(changes)

    def feed(self, changes: Sequence[Change]) -> list[ResultEvent]:
        """Apply changes, each with at most one event. If one fails, none is applied."""
        presented = [None if change.after is None else self._present(change.after) for change in changes]
        pairs = zip(changes, presented, strict=True)
        return [event for change, shown in pairs if (event := self._event_of(change, shown)) is not None]

    def holds(self, key: Hashable) -> bool:
        """Whether the row is in the result."""
        return key in self._rows

    def shown(self) -> list[Shown]:
        """Return the result, oldest member first."""
        return list(self._rows.values())

    def _event_of(self, change: Change, shown: Any) -> ResultEvent | None:
        old = self._rows.get(change.key)
        if change.after is None:
            if old is None:
                return None
            del self._rows[change.key]
            return ResultEvent(match_type=MatchType.REMOVE, key=old.id, document=old.document)
        self._rows[change.key] = Shown(change.key, change.id, shown)
        if old is None:
            return ResultEvent(match_type=MatchType.ADD, key=change.id, document=shown)
        if same_row(old.document, shown):
            return None
        return ResultEvent(match_type=MatchType.CHANGE, key=change.id, document=shown)


class StatelessView:
    """Result that is not kept: sends add, change and remove from before-images only."""

    def __init__(self, present: Callable[[Row], Any]) -> None:
        self._present = present

    def load(self, changes: Sequence[Change]) -> None:
        """Do nothing: nothing is kept."""

    def feed(self, changes: Sequence[Change]) -> list[ResultEvent]:
        """Return the events of these changes, at most one each."""
        return [event for change in changes if (event := self._event_of(change)) is not None]

    def holds(self, key: Hashable) -> bool:
        """Return False: whether the row is in the result is unknown."""
        return False

    def shown(self) -> list[Shown]:
        """Return an empty list: only the database knows the result."""
        return []

    def _event_of(self, change: Change) -> ResultEvent | None:
        if change.after is None:
            return self._event(MatchType.REMOVE, change, change.before)
        if not isinstance(change.before, Mapping):
            return self._event(MatchType.ADD, change, change.after)
        event = self._event(MatchType.CHANGE, change, change.after)
        return None if same_row(self._present(change.before), event.document) else event

    def _event(self, match_type: MatchType, change: Change, row: Any) -> ResultEvent:
        return ResultEvent(match_type=match_type, key=change.id, document=self._present(row))
