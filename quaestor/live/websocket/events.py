"""Events of a followed query as messages: encoded once, whatever the number of subscriptions that receive them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from quaestor.incremental import ResultEvent
from quaestor.live.websocket.forms import EXTENDED_JSON, RecordForm, bson_end, encoded
from quaestor.live.websocket.positions import Position
from quaestor.live.websocket.requests import Subscribe
from quaestor.model import MatchType, Version, WriteKind

_OPERATIONS: Final = {
    None: "none",
    WriteKind.INSERT: "insert",
    WriteKind.UPDATE: "update",
    WriteKind.REPLACE: "update",
    WriteKind.DELETE: "delete",
}
_MATCH: Final = frozenset({MatchType.ADD, MatchType.CHANGE, MatchType.CHANGE_INDEX})


def date_text(now_ms: int) -> str:
    """A time as the protocol writes it: ISO 8601 with milliseconds, UTC."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_text(kind: str, *, id: str | None, now_ms: int, **fields: Any) -> str:  # noqa: A002 - the wire's name
    """A message of the server that is no event.

    id: of the subscription; None: of the socket.
    """
    message = {"id": id, "type": kind, "date": date_text(now_ms), **fields}
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class EventShape:
    """Shape of the events that a subscription wants.

    form: of records.
    match_types: match types that are sent, as themselves or as `match`.
    as_match: match types that are sent as `match`.
    operations: operations that are sent; None: all.
    before: with the record as it was shown last.
    delta: changed fields in place of the record.
    """

    form: RecordForm
    match_types: frozenset[MatchType]
    as_match: frozenset[MatchType]
    operations: frozenset[str] | None
    before: bool
    delta: bool

    @classmethod
    def of(cls, message: Subscribe, form: RecordForm) -> EventShape:
        """The shape that a message asks for. Equal ones are one object, so that their messages are found at once."""
        flags = message.beforeImages, message.delta
        return cls._of(form, frozenset(message.matchTypes), frozenset(message.operations), *flags)

    @classmethod
    @lru_cache(maxsize=1_024)
    def _of(
        cls, form: RecordForm, names: frozenset[str], operations: frozenset[str], before: bool, delta: bool
    ) -> EventShape:
        single = {MatchType(name) for name in names - {"all", "match"}}
        every = {*_MATCH, MatchType.REMOVE} if "all" in names else set[MatchType]()
        merged = _MATCH - single - every if "match" in names else frozenset[MatchType]()
        return cls(
            form=form,
            match_types=frozenset(single | every | merged),
            as_match=merged,
            operations=None if "any" in operations else operations,
            before=before,
            delta=delta,
        )

    def wants(self, event: ResultEvent) -> bool:
        """Whether the event is sent."""
        return event.match_type in self.match_types and (
            self.operations is None or _OPERATIONS[event.operation] in self.operations
        )


PLAIN: Final = EventShape.of(Subscribe(type="subscribe", id="1", bucket="1"), EXTENDED_JSON)
"""Shape that a subscription has without options."""


class SharedMatch:
    """One event of a followed query, for all its subscriptions.

    before: the record as it was shown before; None for a new one.
    position: of the result behind the event.
    version: of the newest write that the result may contain then.
    """

    __slots__ = ("_bucket", "_date", "_ends", "_newest", "_tails", "before", "event", "position", "version")

    def __init__(
        self, event: ResultEvent, *, before: Any, position: Position, version: Version, bucket: str, now_ms: int
    ) -> None:
        self.event = event
        self.before = before
        self.position = position
        self.version = version
        self._bucket = bucket
        self._date = date_text(now_ms)
        self._tails: dict[tuple[Any, ...], str] = {}
        self._newest: tuple[EventShape | None, str | None] = None, None
        self._ends: dict[tuple[Any, ...], bytes] = {}

    def tail(self, shape: EventShape) -> str | None:
        """The message without its `{"id":...,`; None: the shape does not want it."""
        newest, tail = self._newest
        if shape is not newest:
            tail = self._encoded(shape) if shape.wants(self.event) else None
            self._newest = shape, tail
        return tail

    def bson_end(self, shape: EventShape) -> bytes | None:
        """The message as the end of a BSON document, whose beginning is the id; None: the shape does not want it."""
        if not shape.wants(self.event):
            return None
        key = self._key(shape)
        end = self._ends.get(key)
        if end is None:
            end = self._ends[key] = bson_end(self._fields(shape))
        return end

    @property
    def characters(self) -> int:
        """Characters of the text; of the form that was encoded first, if there are several."""
        return len(next(iter((*self._tails.values(), *self._ends.values())), "") or self._encoded(PLAIN))

    def _key(self, shape: EventShape) -> tuple[Any, ...]:
        return shape.form, self.event.match_type in shape.as_match, shape.before, shape.delta

    def _encoded(self, shape: EventShape) -> str:
        key = self._key(shape)
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = encoded(self._fields(shape))[1:]
        return tail

    def _fields(self, shape: EventShape) -> dict[str, Any]:
        event = self.event
        fields: dict[str, Any] = {
            "type": "match",
            "date": self._date,
            "matchType": "match" if event.match_type in shape.as_match else event.match_type.value,
            "operation": _OPERATIONS.get(event.operation, "none"),
        }
        if event.index is not None:
            fields["index"] = event.index
        if event.previous_index is not None:
            fields["previousIndex"] = event.previous_index
        record = shape.form.record
        shown, before = record(self._bucket, event.document), record(self._bucket, self.before)
        if shape.delta and isinstance(shown, Mapping) and isinstance(before, Mapping):
            fields["key"], fields["changes"] = event.key, changes(before, shown)
        else:
            fields["data"] = shown
            if not names_itself(event.key, event.document):
                fields["key"] = event.key
        if shape.before and self.before is not None:
            fields["before"] = before
        fields["version"] = str(event.version or self.version)
        fields["offset_token"] = self.position.token
        return fields


def names_itself(key: Any, document: Any) -> bool:
    """Whether the key of a row is its `_id`."""
    return isinstance(document, Mapping) and "_id" in document and bool(document["_id"] == key)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Difference of two records: the fields that are new or have another value, and the names of removed fields."""
    updated = {name: value for name, value in after.items() if name not in before or _differ(before[name], value)}
    return {"updated": updated, "removed": [name for name in before if name not in after]}


def _differ(old: Any, new: Any) -> bool:
    """Types count: 1, 1.0 and true are three values."""
    return type(old) is not type(new) or encoded(old) != encoded(new)
