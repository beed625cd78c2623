"""The filtering stage: writes become changes of the records that match. The first step of every maintained result.

Whether a record matched before comes from one of two places. *Membership*: a later stage remembers what it was given.
*Before-images*: the write says it, and nothing is remembered for a record. (InvaliDB, PVLDB 2020, section 5.1.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from bson.raw_bson import RawBSONDocument

from quaestor.errors import UncertainMatchError
from quaestor.event_layer.codec import plain
from quaestor.incremental.changes import UNKNOWN, Change, Row, same_row
from quaestor.incremental.events import ResultEvent, Shown
from quaestor.model import AfterImage, Document, MatchType, WriteKind
from quaestor.query.bson_order import order_key
from quaestor.query.paths import Matcher


class Filter:
    """Judges the images of one namespace. Remembers nothing."""

    __slots__ = ("_before_images", "_matches")

    def __init__(self, matches: Matcher, *, before_images: bool) -> None:
        self._matches = matches
        self._before_images = before_images

    def change(self, image: AfterImage) -> Change | None:
        """What the write means for the matching records; None if it is certain to mean nothing.

        An update whose record could not be looked up any more counts as its delete, which is on its way.

        Raises UncertainMatchError if the filter cannot tell, or if before-images are to tell and the write has none.
        """
        after = None if image.kind is WriteKind.DELETE else self._matching(image.after)
        key = order_key(image.key)
        if not self._before_images:
            return Change(key, image.key, UNKNOWN, after)
        exact = image.kind is WriteKind.DELETE or image.after_exact
        if not image.before_known or not exact:
            raise UncertainMatchError(
                f"the {image.kind.value} of {image.key!r} in {image.namespace} came without exact before- and after-image; "
                "switch on changeStreamPreAndPostImages for the collection, or keep the result by membership"
            )
        before = self._matching(image.before)
        return None if before is None and after is None else Change(key, image.key, before, after)

    def initial(self, records: Sequence[Document]) -> list[Change]:
        """Records that the database found, as changes of an empty result."""
        before = None if self._before_images else UNKNOWN
        return [Change(order_key(record["_id"]), record["_id"], before, as_row(record)) for record in records]

    def _matching(self, record: Document | None) -> Row | None:
        if record is None:
            return None
        row = as_row(record)
        return row if self._matches(row) else None


def as_row(record: Document) -> Row:
    """The record decoded once and for all; lazily decoded ones would be decoded again by every stage."""
    if record.__class__ is dict:
        return record
    if isinstance(record, RawBSONDocument):
        decoded: Mapping[str, Any] = plain(record)
        return decoded
    return dict(record)


class Bag:
    """The last step of a result without order: add, change and remove. Not thread-safe. O(1) for each change."""

    def __init__(self, present: Callable[[Row], Any]) -> None:
        self._present = present
        self._rows: dict[Hashable, Shown] = {}

    def load(self, changes: Sequence[Change]) -> None:
        """Begin with these rows."""
        self.feed(changes)

    def feed(self, changes: Sequence[Change]) -> list[ResultEvent]:
        """Apply changes, each of which is at most one event. If one fails, none is applied."""
        presented = [None if change.after is None else self._present(change.after) for change in changes]
        pairs = zip(changes, presented, strict=True)
        return [event for change, shown in pairs if (event := self._one(change, shown)) is not None]

    def holds(self, key: Hashable) -> bool:
        """Whether the row is in the result."""
        return key in self._rows

    def shown(self) -> list[Shown]:
        """The result, oldest member first."""
        return list(self._rows.values())

    def _one(self, change: Change, shown: Any) -> ResultEvent | None:
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


class Passing:
    """The last step of a result that nobody keeps: add, change and remove told from before-images alone."""

    def __init__(self, present: Callable[[Row], Any]) -> None:
        self._present = present

    def load(self, changes: Sequence[Change]) -> None:
        """Nothing is kept."""

    def feed(self, changes: Sequence[Change]) -> list[ResultEvent]:
        """At most one event for each change."""
        return [event for change in changes if (event := self._one(change)) is not None]

    def holds(self, key: Hashable) -> bool:
        """Nothing is kept."""
        return False

    def shown(self) -> list[Shown]:
        """Always empty: ask the database."""
        return []

    def _one(self, change: Change) -> ResultEvent | None:
        if change.after is None:
            return self._told(MatchType.REMOVE, change, change.before)
        if not isinstance(change.before, Mapping):
            return self._told(MatchType.ADD, change, change.after)
        event = self._told(MatchType.CHANGE, change, change.after)
        return None if same_row(self._present(change.before), event.document) else event

    def _told(self, match_type: MatchType, change: Change, row: Any) -> ResultEvent:
        return ResultEvent(match_type=match_type, key=change.id, document=self._present(row))
