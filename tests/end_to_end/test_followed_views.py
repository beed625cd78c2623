"""Subscriptions to views: rows equal what the view answers after random writes, and a new definition ends them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pymongo
import pytest
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.errors import SubscriptionError
from quaestor.model import Operation, Query
from quaestor.realtime.live import LiveResult
from quaestor.realtime.notices import DeliveryMode
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
Database = pymongo.database.Database[Json]
VIEWS: dict[str, tuple[str, list[Json]]] = {
    "cheap": ("items", [{"$match": {"n": {"$lt": 6}}}]),
    "shown": ("items", [{"$match": {"n": {"$gte": 2}}}, {"$project": {"tag": 1, "twice": {"$multiply": ["$n", 2]}}}]),
    "tags": ("items", [{"$match": {"n": {"$gte": 2}}}, {"$sort": {"n": 1}}, {"$project": {"tag": 1}}]),
    "shown_cheap": ("cheap", [{"$set": {"cheap": True}}]),
    "sums": ("items", [{"$group": {"_id": "$tag", "n": {"$sum": "$n"}}}]),
    "joined": ("items", [{"$lookup": {"from": "more", "localField": "tag", "foreignField": "tag", "as": "more"}}]),
    "union": (
        "items",
        [{"$project": {"n": 1}}, {"$unionWith": {"coll": "more", "pipeline": [{"$project": {"n": 1}}]}}],
    ),
    "deep": ("more", [{"$lookup": {"from": "sums", "localField": "tag", "foreignField": "_id", "as": "more"}}]),
}


def find(view: str, **parts: Any) -> Query:
    return Query(namespace=view, operation=Operation.FIND, filter=parts.pop("filter", {}), **parts)


def aggregate(view: str, *stages: Json) -> Query:
    return Query(namespace=view, operation=Operation.AGGREGATE, filter={}, pipeline=stages)


def joining(field: str, source: str) -> Json:
    return {"$lookup": {"from": source, "localField": field, "foreignField": field, "as": "more"}}


def graph(source: str) -> Json:
    walk = {"startWith": "$n", "connectFromField": "n", "connectToField": "n", "maxDepth": 1}
    return {"$graphLookup": {"from": source, **walk, "as": "more"}}


QUERIES: dict[str, tuple[Query, DeliveryMode]] = {
    "filter": (find("cheap", filter={"tag": "a"}), DeliveryMode.EXACT),
    "window": (find("cheap", sort=(("n", -1),), skip=1, limit=3), DeliveryMode.EXACT),
    "count": (Query(namespace="cheap", operation=Operation.COUNT, filter={"tag": "a"}), DeliveryMode.EXACT),
    "count behind fields": (
        Query(namespace="tags", operation=Operation.COUNT, filter={"tag": "a"}),
        DeliveryMode.EXACT,
    ),
    "distinct": (
        Query(namespace="cheap", operation=Operation.DISTINCT, filter={}, distinct_key="tag"),
        DeliveryMode.EXACT,
    ),
    "computed": (find("shown", filter={"twice": {"$gt": 6}}, sort=(("twice", 1),), limit=4), DeliveryMode.EXACT),
    "view on a view": (find("shown_cheap", sort=(("n", 1),)), DeliveryMode.EXACT),
    "groups": (find("sums", filter={"n": {"$gt": 3}}), DeliveryMode.EXACT),
    "join": (find("joined", sort=(("n", 1),)), DeliveryMode.EXACT),
    "pipeline": (aggregate("cheap", {"$group": {"_id": "$tag", "n": {"$sum": 1}}}), DeliveryMode.EXACT),
    "recomputed": (find("union"), DeliveryMode.RECOMPUTED),
    "count of computed records": (
        Query(namespace="sums", operation=Operation.COUNT, filter={"n": {"$gt": 3}}),
        DeliveryMode.RECOMPUTED,
    ),
    "window of a count": (
        Query(namespace="sums", operation=Operation.COUNT, filter={}, skip=1, limit=1),
        DeliveryMode.RECOMPUTED,
    ),
    "distinct of computed records": (
        Query(namespace="sums", operation=Operation.DISTINCT, filter={}, distinct_key="n"),
        DeliveryMode.RECOMPUTED,
    ),
    "distinct through arrays": (
        Query(namespace="joined", operation=Operation.DISTINCT, filter={}, distinct_key="more.n"),
        DeliveryMode.RECOMPUTED,
    ),
    "lookup from a filtered view": (aggregate("items", joining("tag", "cheap")), DeliveryMode.EXACT),
    "lookup from a shaped view": (aggregate("items", joining("tag", "shown")), DeliveryMode.EXACT),
    "lookup from a view on a view": (aggregate("items", joining("tag", "shown_cheap")), DeliveryMode.EXACT),
    "lookup by a pipeline on a view": (
        aggregate("items", {"$lookup": {"from": "shown", "pipeline": [{"$match": {"twice": 6}}], "as": "more"}}),
        DeliveryMode.EXACT,
    ),
    "lookup by a computed field": (
        aggregate("items", {"$lookup": {"from": "shown", "localField": "n", "foreignField": "twice", "as": "more"}}),
        DeliveryMode.RECOMPUTED,
    ),
    "lookup from groups": (
        aggregate("items", {"$lookup": {"from": "sums", "localField": "tag", "foreignField": "_id", "as": "more"}}),
        DeliveryMode.RECOMPUTED,
    ),
    "lookup from a view that joins": (aggregate("items", joining("_id", "joined")), DeliveryMode.RECOMPUTED),
    "union with a view": (aggregate("items", {"$unionWith": "cheap"}), DeliveryMode.RECOMPUTED),
    "union with groups": (
        aggregate("more", {"$unionWith": {"coll": "sums", "pipeline": [{"$match": {"n": {"$gt": 3}}}]}}),
        DeliveryMode.RECOMPUTED,
    ),
    "graph of a filtered view": (aggregate("items", graph("cheap")), DeliveryMode.RECOMPUTED),
    "graph of groups": (aggregate("items", graph("sums")), DeliveryMode.RECOMPUTED),
    "view within a facet": (
        aggregate("more", {"$facet": {"all": [{"$unionWith": "sums"}, {"$count": "n"}]}}),
        DeliveryMode.RECOMPUTED,
    ),
    "view that reads a view": (find("deep"), DeliveryMode.RECOMPUTED),
    "facet": (aggregate("cheap", {"$facet": {"number": [{"$count": "n"}]}}), DeliveryMode.RECOMPUTED),
}


@pytest.fixture
def database(mongo_url: str, prefix: str) -> Iterator[Database]:
    with pymongo.MongoClient[Json](mongo_url) as client:
        for name in ("items", "more"):
            client[prefix].create_collection(name, changeStreamPreAndPostImages={"enabled": True})
        for name, (base, pipeline) in VIEWS.items():
            client[prefix].create_collection(name, viewOn=base, pipeline=pipeline)
        yield client[prefix]
        client.drop_database(prefix)


@pytest.fixture
async def quaestor(mongo_url: str) -> AsyncIterator[Quaestor]:
    running = Quaestor(**PATIENT | {"poll_interval_ms": 20})
    client: AsyncMongoClient[Json] = AsyncMongoClient(mongo_url, event_listeners=[running.capture])
    await client.admin.command("ping")
    await running.start()
    yield running
    await running.stop()
    await client.close()


def placed(query: Query, database: Database) -> Query:
    return replace(query, namespace=f"{database.name}.{query.namespace}")


def answered(query: Query, database: Database) -> list[Any]:
    """Return the answer of the view. `_id` decides ties of an order."""
    view = database[query.namespace]
    match query.operation:
        case Operation.COUNT:
            window = {name: value for name, value in (("skip", query.skip), ("limit", query.limit)) if value}
            return [view.count_documents(query.filter, **window)]
        case Operation.DISTINCT:
            return sorted(view.distinct(query.distinct_key or "", query.filter), key=repr)
        case Operation.AGGREGATE:
            return sorted(map(joined_in_order, view.aggregate(list(query.pipeline))), key=repr)
    cursor = view.find(query.filter).skip(query.skip).limit(query.limit)
    if query.sort:
        cursor = cursor.sort([*query.sort, ("_id", 1)])
    rows = [joined_in_order(document) for document in cursor]
    return rows if query.sort else sorted(rows, key=repr)


def joined_in_order(document: Any) -> Any:
    """The record, with joined records in one order: mongod joins them in the order of storage."""
    if not (isinstance(document, dict) and "more" in document):
        return document
    return document | {"more": sorted(document["more"], key=repr)}


def shown(query: Query, live: LiveResult) -> list[Any]:
    rows = [joined_in_order(document) for _, document in live.rows()]
    return rows if query.sort or query.operation is Operation.COUNT else sorted(rows, key=repr)


def write(database: Database, chance: random.Random) -> None:
    collection = database[chance.choice(["items", "items", "more"])]
    key = chance.randrange(12)
    if chance.random() < 0.25:
        collection.delete_one({"_id": key})
    else:
        record = {"n": chance.randrange(10), "tag": chance.choice("abc")}
        collection.replace_one({"_id": key}, record, upsert=True)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
async def test_rows_equal_what_the_view_answers(quaestor: Quaestor, database: Database, seed: int) -> None:
    """Oracle: exact where the query on the collection below is maintained, otherwise recomputed with the reason."""
    chance = random.Random(seed)
    for _ in range(10):
        await asyncio.to_thread(write, database, chance)
    followed = {name: await quaestor.subscribe(placed(query, database)) for name, (query, _) in QUERIES.items()}
    for name, live in followed.items():
        assert live.delivery is QUERIES[name][1], name
        assert (live.recomputation is None) == (live.delivery is DeliveryMode.EXACT)
    for _ in range(5):
        for _ in range(8):
            await asyncio.to_thread(write, database, chance)
        for name, live in followed.items():
            query = QUERIES[name][0]
            with suppress(AssertionError):
                await eventually(
                    lambda query=query, live=live: shown(query, live) == answered(query, database), within_s=10
                )
            assert (name, shown(query, live)) == (name, answered(query, database))
    for live in followed.values():
        await live.cancel()


async def ended(live: LiveResult) -> str:
    """The error that ends a subscription."""
    with pytest.raises(SubscriptionError) as error:
        async for _ in live:
            pass
    return str(error.value)


async def test_a_new_definition_ends_the_subscription_and_no_other(quaestor: Quaestor, database: Database) -> None:
    """A subscriber of the same query on the collection goes on; a new subscription follows the new definition."""
    database.items.insert_many([{"_id": n, "n": n, "tag": "a"} for n in range(10)])
    by_view = await quaestor.subscribe(placed(find("cheap"), database))
    direct = await quaestor.subscribe(placed(find("items", filter={"n": {"$lt": 6}}), database))
    assert by_view.query == direct.query
    database.command("collMod", "cheap", viewOn="items", pipeline=[{"$match": {"n": {"$lt": 3}}}])
    assert "new definition" in await asyncio.wait_for(ended(by_view), 20)
    database.items.insert_one({"_id": 10, "n": 0})
    await eventually(lambda: len(direct.rows()) == 7)
    assert not direct.failed
    again = await quaestor.subscribe(placed(find("cheap"), database))
    assert len(again.rows()) == 4
    for live in (by_view, direct, again):
        await live.cancel()


@pytest.mark.parametrize(
    "stage",
    [joining("tag", "cheap"), {"$unionWith": "sums"}, graph("sums")],
    ids=["rewritten", "union", "executed as asked"],
)
async def test_a_new_definition_of_a_view_in_a_stage_ends_the_subscription(
    quaestor: Quaestor, database: Database, stage: Json
) -> None:
    live = await quaestor.subscribe(placed(aggregate("items", stage), database))
    for name in ("cheap", "sums"):
        database.command("collMod", name, viewOn="items", pipeline=[{"$match": {"n": {"$lt": 3}}}])
    assert "new definition" in await asyncio.wait_for(ended(live), 20)
