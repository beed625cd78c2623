"""A tiny database with a change stream, and queries on it executed from scratch: what the node is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import bson

from quaestor.model import AfterImage, Document, Operation, Query, WriteKind
from quaestor.query.bson_order import order_key
from quaestor.query.compiled import compile_query
from quaestor.query.sorting import sort_documents

NAMESPACE = "db.things"
State = dict[int, Document]


@dataclass
class World:
    """Records by `_id` in insertion order, every state there ever was by version, and the events in order.

    images: "exact" (before and after), "after" (exact, without before), "lookup" (updates carry what is found on delivery).
    """

    images: str
    version: int = 100
    state: State = field(default_factory=dict)
    history: dict[int, State] = field(default_factory=dict)
    events: list[AfterImage] = field(default_factory=list)
    delivered: int = 0

    def __post_init__(self) -> None:
        self.history[self.version] = self.state

    def write(self, key: int, body: Document | None, *, replace: bool) -> None:
        """Insert, update (or replace) or, without a body, delete; what changes nothing is no event."""
        before = self.state.get(key)
        after = None if body is None else {"_id": key, **body}
        if after == before or (before is not None and after is not None and same(before, after)):
            return
        if after is None:
            kind = WriteKind.DELETE
        elif before is None:
            kind = WriteKind.INSERT
        else:
            kind = WriteKind.REPLACE if replace else WriteKind.UPDATE
        self.version += 1
        state = dict(self.state)
        if after is None:
            del state[key]
        else:
            state[key] = after
        self.state = self.history[self.version] = state
        looked_up = self.images == "lookup" and kind is WriteKind.UPDATE
        known = self.images == "exact" or kind is WriteKind.INSERT
        self.events.append(
            AfterImage(
                namespace=NAMESPACE,
                kind=kind,
                version=self.version,
                key=key,
                after=after,
                after_exact=after is not None and not looked_up,
                before=before if known else None,
                before_known=known,
                wall_ms=self.version,
            )
        )

    def next_event(self) -> AfterImage | None:
        if self.delivered == len(self.events):
            return None
        event = self.events[self.delivered]
        self.delivered += 1
        if event.after is not None and not event.after_exact:
            fields = {name: getattr(event, name) for name in event.__slots__}
            return AfterImage(**fields | {"after": self.state.get(event.key)})
        return event


def same(a: Any, b: Any) -> bool:
    return bson.encode({"": a}) == bson.encode({"": b})


def execute(query: Query, state: State) -> Any:
    """Return the database's answer in a comparable form."""
    matches = compile_query(query.filter).matches
    records = [record for record in state.values() if matches(record)]
    if query.operation is Operation.DISTINCT:
        return frozenset(
            order_key(value) for record in records for value in _unwound(record.get(query.distinct_key or ""))
        )
    records = sort_documents(records, query.sort)[query.skip :]
    if query.limit:
        records = records[: query.limit]
    if query.operation is Operation.COUNT:
        return len(records)
    return [bson.encode(project(record, query.projection)) for record in records]


def project(record: Document, projection: Document | None) -> Document:
    """Inclusion or exclusion of top-level fields."""
    if not projection:
        return record
    with_id = bool(projection.get("_id", True))
    named = {name for name, on in projection.items() if name != "_id"}
    if any(on for name, on in projection.items() if name != "_id"):
        return {name: value for name, value in record.items() if name in named or (name == "_id" and with_id)}
    return {name: value for name, value in record.items() if name not in named and (name != "_id" or with_id)}


def _unwound(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
