"""The node against a real mongod: whoever is not told of a change would read the same again.

Random queries are read and registered as an application's are; random writes come back through the real change stream,
with and without pre- and post-images; after every write, each live registration's query is run again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import bson
import pymongo
import pytest
from pymongo.collection import Collection

from quaestor.invalidation.change_events import after_images
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.registering import dependencies, registration
from quaestor.model import (
    AfterImage,
    CapturedRead,
    Cell,
    GridShape,
    Invalidated,
    Operation,
    Query,
    WriteKind,
)

Records = Collection[dict[str, Any]]

RECORDS = 40
QUERIES = 40
WRITES = 120
SEEDS = (1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow))
NOW_MS = 1_000
FOREVER_MS = 10**9


def _record(rng: random.Random) -> dict[str, Any]:
    record: dict[str, Any] = {"a": rng.randrange(8), "name": rng.choice(["ann", "anna", "bob", "Bob", ""])}
    if rng.random() < 0.7:
        record["b"] = rng.choice([1, 2.5, None, "x", [1, 3], [], {"c": 1}, [{"c": 1}, {"c": 2}]])
    if rng.random() < 0.5:
        record["views"] = rng.randrange(100)
    return record


def _condition(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        [
            {},
            {"a": rng.randrange(8)},
            {"a": {"$gte": rng.randrange(4), "$lt": rng.randrange(4, 9)}},
            {"a": {"$in": rng.sample(range(8), 3)}},
            {"b": None},
            {"b": {"$gt": 1}},
            {"b.c": rng.choice([1, 2])},
            {"name": {"$regex": "^an"}},
            {"a": {"$ne": rng.randrange(8)}},
            {"$or": [{"a": rng.randrange(8)}, {"name": "bob"}]},
            {"b": {"$elemMatch": {"$gte": 1, "$lt": 3}}, "a": {"$gt": 1}},
        ]
    )


def _query(rng: random.Random, namespace: str) -> Query:
    operation = rng.choice([Operation.FIND] * 6 + [Operation.COUNT, Operation.DISTINCT])
    if operation is not Operation.FIND:
        key = rng.choice(["a", "b", "name"]) if operation is Operation.DISTINCT else None
        return Query(namespace=namespace, operation=operation, filter=_condition(rng), distinct_key=key)
    sort = rng.choice([(), (("a", 1),), (("a", -1), ("_id", 1)), (("name", 1), ("_id", -1)), (("b", 1), ("_id", 1))])
    if sort == (("a", 1),):
        # mongod may put records with equal keys in another order each time, and cut a window among them elsewhere.
        return Query(namespace=namespace, operation=operation, filter=_condition(rng), sort=sort)
    return Query(
        namespace=namespace,
        operation=operation,
        filter=_condition(rng),
        sort=sort,
        skip=rng.choice([0, 0, 0, 2]),
        limit=rng.choice([0, 0, 1, 5]),
        projection=rng.choice([None, None, {"name": 1}, {"views": 0}, {"a": 1, "_id": 0}]),
    )


def _read(records: Records, query: Query) -> tuple[dict[str, Any], ...]:
    if query.operation is Operation.COUNT:
        return ({"n": records.count_documents(query.filter)},)
    if query.operation is Operation.DISTINCT:
        values = records.distinct(query.distinct_key or "", query.filter)
        return ({"values": sorted(values, key=lambda value: bson.encode({"": value}))},)
    cursor = records.find(query.filter, query.projection, skip=query.skip, limit=query.limit)
    return tuple(cursor.sort(list(query.sort)) if query.sort else cursor)


def _comparable(query: Query, answer: tuple[dict[str, Any], ...]) -> list[bytes]:
    encoded = [bson.encode(document) for document in answer]
    return sorted(encoded) if query.sort == (("a", 1),) else encoded


def _write(rng: random.Random, records: Records) -> None:
    key = rng.randrange(RECORDS + 5)
    choice = rng.random()
    if choice < 0.2:
        records.delete_one({"_id": key})
    elif choice < 0.4:
        records.replace_one({"_id": key}, _record(rng), upsert=True)
    elif choice < 0.6:
        records.update_one({"_id": key}, {"$inc": {"views": 1}})
    elif choice < 0.8:
        records.update_one({"_id": key}, {"$set": _record(rng)})
    else:
        records.update_many({"a": rng.randrange(8)}, {"$set": {"b": rng.randrange(3)}})


class _Run:
    """One collection, its change stream, one node."""

    def __init__(self, records: Records, images: bool, rng: random.Random) -> None:
        self.records = records
        self.images = images
        self.rng = rng
        self.namespace = f"{records.database.name}.{records.name}"
        self.node = MatchingNode(
            Cell(query_partition=0, write_partition=0),
            GridShape(query_partitions=1, write_partitions=1),
            retention_ms=60_000,
        )
        self.live: dict[str, tuple[Query, tuple[dict[str, Any], ...]]] = {}
        self.counter = 0
        self.fired = 0
        self.tick()

    def now(self) -> int:
        """The database's current version."""
        reply = self.records.database.command("ping")
        return int(reply["operationTime"].time) << 32 | int(reply["operationTime"].inc)

    def tick(self) -> None:
        self.node.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=self.now()), now_ms=NOW_MS)

    def register(self) -> None:
        query = _query(self.rng, self.namespace)
        since = self.node.watermark
        answer = _read(self.records, query)
        read = CapturedRead(
            query=query,
            read_at=self.now(),
            ids=_ids(answer) if query.operation is Operation.FIND else None,
            last=answer[-1] if answer else None,
        )
        self.counter += 1
        registered = registration(
            dependencies([read])[0],
            registration_id=f"app:{self.counter}",
            tenant="t",
            since=since,
            expires_at_ms=FOREVER_MS,
        )
        self.live[registered.id] = query, answer
        for outcome in self.node.register(registered, now_ms=NOW_MS):
            if isinstance(outcome, Invalidated):
                self.forget(outcome)

    def forget(self, outcome: Invalidated) -> None:
        for registration_id in outcome.registration_ids:
            del self.live[registration_id]
            self.fired += 1

    def deliver(self, events: Iterator[Any]) -> None:
        for event in events:
            for image in after_images(event, post_images=self.images):
                for outcome in self.node.process(image, now_ms=NOW_MS):
                    self.forget(outcome)

    def check(self) -> None:
        for query, answer in self.live.values():
            assert _comparable(query, _read(self.records, query)) == _comparable(query, answer), query


@pytest.mark.parametrize("images", [False, True], ids=["look-ups", "pre- and post-images"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_not_invalidated_reads_the_same(mongo_url: str, prefix: str, seed: int, images: bool) -> None:
    rng = random.Random(seed)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        database = client[prefix]
        database.create_collection("records", changeStreamPreAndPostImages={"enabled": images})
        records = database.records
        records.insert_many([{"_id": key, **_record(rng)} for key in range(RECORDS)])
        options: dict[str, Any] = (
            {"full_document": "required", "full_document_before_change": "required"}
            if images
            else {"full_document": "updateLookup"}
        )
        with database.watch(**options) as stream:
            run = _Run(records, images, rng)
            try:
                for mark in range(WRITES):
                    while len(run.live) < QUERIES:
                        run.register()
                    _write(rng, records)
                    if rng.random() < 0.3:
                        run.register()  # read before, registered before the node has heard of the write
                    database.marks.insert_one({"_id": mark})
                    run.deliver(_up_to(stream, mark))
                    run.check()
            finally:
                client.drop_database(prefix)
    assert run.fired > WRITES / 4


def _up_to(stream: Any, mark: int) -> Iterator[Any]:
    """Every event up to the insertion of this mark."""
    for event in stream:
        yield event
        if event["ns"]["coll"] == "marks" and event["documentKey"]["_id"] == mark:
            return


def _ids(documents: Sequence[Any]) -> tuple[Any, ...] | None:
    return None if any("_id" not in one for one in documents) else tuple(one["_id"] for one in documents)
