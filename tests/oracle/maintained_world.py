"""A real collection with a real change stream, random writes on it, and queries that are maintained from its images."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import bson
import pymongo
from bson import Decimal128, ObjectId
from pymongo.database import Database

from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.incremental import (
    MaintainedResult,
    PriorState,
    RenewalSettings,
    bootstrap_queries,
    maintain,
    replay,
    unambiguous,
)
from quaestor.invalidation.ingest.change_events import RAW_OPTIONS, after_images
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.model import AfterImage, Operation, Query, Version
from quaestor.query.bson_order import order_key
from tests.oracle.maintained_generator import Generator

Document = dict[str, Any]
ANY_ORDER = frozenset({"set", "joined"})
"""Arrays whose order the database leaves open."""
ANY_TYPE = frozenset({"_id", "min", "max", "set", "first", "last"})
"""Values that stand for all equal ones, of whatever numeric type."""
IDS: list[Any] = [*range(24), 2.5, "p", "q", {"k": 1}, True, Decimal128("7.5"), ObjectId("65f000000000000000000000")]
COMPUTED = frozenset({"sum", "avg", "total"})
"""Sums and what follows from them."""


@dataclass
class Read:
    """The content and the version of a read for a renewal."""

    own: list[Any]
    foreign: dict[str, list[Any]]
    version: Version


@dataclass
class Active:
    """One maintained query, and the list that a subscriber makes of its events."""

    query: Query
    prior_state: PriorState
    maintained: MaintainedResult
    client: list[tuple[Any, Any]]
    renewals: int = 0
    events: int = 0
    read: Read | None = None


@dataclass
class World:
    """One database. images: record before- and after-images with every write."""

    client: pymongo.MongoClient[Document]
    name: str
    images: bool
    generator: Generator
    version: Version = 0
    actives: list[Active] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random: random.Random = self.generator.random
        self.database: Database[Document] = self.client.get_database(self.name, codec_options=BSON_OPTIONS)
        for collection in ("things", "others"):
            self.database.create_collection(collection, changeStreamPreAndPostImages={"enabled": self.images})
        raw = self.client.get_database(self.name, codec_options=RAW_OPTIONS)
        self.stream = raw.watch(
            full_document="required" if self.images else "updateLookup",
            full_document_before_change="whenAvailable",
            show_expanded_events=False,
        )
        for _ in range(self.random.choice([0, 20, 60])):
            self.write()
        self.drain()

    def close(self) -> None:
        self.stream.close()
        self.client.drop_database(self.name)

    def drain(self) -> list[AfterImage]:
        """Every image so far, in order; a marker written now tells where they end."""
        marker = self.database["markers"].insert_one({}).inserted_id
        images: list[AfterImage] = []
        records = RecordSource.IMAGES if self.images else RecordSource.LOOKED_UP
        while True:
            event = self.stream.next()
            event_images = after_images(event, records=records)
            if event_images and event_images[0].namespace == f"{self.name}.markers":
                if event_images[0].key == marker:
                    self.version = event_images[0].version
                    return images
                continue
            images.extend(event_images)

    def activate(self, query: Query, prior_state: PriorState, settings: RenewalSettings) -> None:
        """Begin to maintain a query."""
        own, *foreign = bootstrap_queries(query, prior_state=prior_state, settings=settings)
        maintained = maintain(
            query,
            initial=self.execute(own),
            version=self.version,
            foreign={side.namespace: self.execute(side) for side in foreign},
            prior_state=prior_state,
            settings=settings,
        )
        rows = replay([], maintained.initial_events())
        if not maintained.maintenance.kept:
            keys = [record["_id"] for record in self.execute(replace(query, projection=None))]
            rows = list(zip(keys, self.execute(query), strict=True))
        self.actives.append(Active(query, prior_state, maintained, rows))

    def write(self) -> None:
        """One random write to one of the collections."""
        generator, draw = self.generator, self.random
        name = draw.choice(["things", "things", "others"])
        collection = self.database[name]
        key = draw.choice(IDS)
        body = generator.thing() if name == "things" else generator.other()
        kind = draw.choice(["put", "put", "put", "update", "update", "delete", "delete", "many", "delete many"])
        if kind == "put":
            collection.replace_one({"_id": key}, body, upsert=True)
        elif kind == "update":
            some = {field: value for field, value in body.items() if draw.random() < 0.4} or {"touched": draw.random()}
            collection.update_one({"_id": key}, {"$set": some})
        elif kind == "delete":
            collection.delete_one({"_id": key})
        elif kind == "many":
            collection.update_many(
                {"a": draw.randrange(4)}, {"$set": {"a": draw.randrange(4), "n": generator.number()}}
            )
        else:
            collection.delete_many({"a": draw.randrange(4), "_id": {"$lt": draw.randrange(20)}})

    def settle(self, *, late: bool = False) -> None:
        """Hand every image to every query, and serve the renewals they ask for.

        late: what is read for a renewal is handed over the next time only, when there have been more writes.
        """
        for image in self.drain():
            for active in self.actives:
                events = active.maintained.apply(image)
                active.events += len(events)
                active.client = replay(active.client, events)
        for active in self.actives:
            if active.read is not None:
                self._hand_over(active, active.read)
            request = active.maintained.renewal
            if request is None:
                continue
            active.read = Read(
                self.execute(request.query),
                {side.namespace: self.execute(side) for side in request.foreign},
                self.version,
            )
            if not late:
                self._hand_over(active, active.read)

    def _hand_over(self, active: Active, read: Read) -> None:
        active.read = None
        active.renewals += 1
        request = active.maintained.renewal
        if request is not None and request.at_least > read.version:
            return
        events = active.maintained.renew(read.own, read.version, foreign=read.foreign, now_ms=self.version >> 32)
        active.client = replay(active.client, events)

    def check(self, active: Active) -> str | None:
        """Return the fault of the maintained result, or None."""
        expected = self.execute(unambiguous(active.query))
        ordered = active.maintained.maintenance.window is not None
        shown = [document for _, document in active.client]
        kept = active.maintained.maintenance.kept
        if kept and comparable(active.maintained.result(), ordered) != comparable(expected, ordered):
            return f"maintained {active.maintained.result()}\n  database {expected}"
        if comparable(shown, ordered) != comparable(expected, ordered):
            return f"replayed {shown}\n  database {expected}"
        if active.maintained.renewal is not None:
            return f"still wants a renewal: {active.maintained.renewal}"
        return None

    def execute(self, query: Query) -> list[Any]:
        """Return the database's answer."""
        collection = self.database[query.namespace.split(".", 1)[1]]
        if query.operation is Operation.AGGREGATE:
            return list(collection.aggregate(list(query.pipeline)))
        if query.operation is Operation.COUNT:
            options: dict[str, Any] = {"skip": query.skip} | ({"limit": query.limit} if query.limit else {})
            return [self.database.command("count", collection.name, query=query.filter, **options)["n"]]
        if query.operation is Operation.DISTINCT:
            return collection.distinct(query.distinct_key or "", query.filter)
        cursor = collection.find(query.filter, query.projection)
        if query.sort:
            cursor = cursor.sort(list(query.sort))
        return list(cursor.skip(query.skip).limit(query.limit))


class Nearly:
    """A computed number: equal if of the same type and equal except for the last digits.

    The database's last digits depend on the order of its scan.
    """

    def __init__(self, value: Any) -> None:
        self.kind = type(value)
        self.number = value.to_decimal() if isinstance(value, Decimal128) else Decimal(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Nearly) or self.kind is not other.kind:
            return False
        if not self.number.is_finite() or not other.number.is_finite():
            return str(self.number) == str(other.number)
        most = Decimal("1e-28") if self.kind is Decimal128 else Decimal("1e-13")
        return abs(self.number - other.number) <= most * max(abs(self.number), 1)

    def __repr__(self) -> str:
        return f"{self.kind.__name__} {self.number:.6g}"


def comparable(rows: Sequence[Any], ordered: bool) -> Any:
    """The rows as something that is equal iff the database means the same."""
    known = [_row(row) for row in rows]
    return known if ordered else sorted(known, key=repr)


def _row(row: Any) -> Any:
    if not isinstance(row, Mapping):
        return order_key(row)
    return [(name, _value(name, value)) for name, value in row.items()]


def _value(name: str, value: Any) -> Any:
    if name in ANY_ORDER and isinstance(value, list):
        return sorted(map(order_key, value))
    if name in COMPUTED and isinstance(value, float | Decimal128):
        return Nearly(value)
    return order_key(value) if name in ANY_TYPE else bson.encode({"": value})
