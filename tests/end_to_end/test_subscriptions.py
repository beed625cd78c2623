"""Subscriptions of an application in embedded mode, on a real mongod: `await quaestor.subscribe(query)` and what follows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pymongo
import pytest
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.errors import ConfigurationError, UnsupportedQueryError
from quaestor.incremental import ResultEvent
from quaestor.model import MatchType, Operation, Query
from quaestor.realtime.live import LiveResult, Whole
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

Collection = pymongo.collection.Collection[dict[str, Any]]


@pytest.fixture
def items(mongo_url: str, prefix: str) -> Any:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        yield client[prefix].items
        client.drop_database(prefix)


@asynccontextmanager
async def running(mongo_url: str, **settings: Any) -> AsyncIterator[Quaestor]:
    quaestor = Quaestor(**PATIENT, **settings)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    await client.admin.command("ping")
    await quaestor.start()
    try:
        yield quaestor
    finally:
        await quaestor.stop()
        await client.close()


async def event(live: LiveResult) -> ResultEvent:
    told = await anext(live)
    assert isinstance(told, ResultEvent)
    return told


async def test_a_subscriber_is_told_the_result_and_then_how_it_changes(mongo_url: str, items: Collection) -> None:
    """A sorted window: pushed out, pulled in, moved, by index."""
    items.insert_many([{"_id": number, "price": 10 * number} for number in range(1, 6)])
    query = Query(namespace=items.full_name, operation=Operation.FIND, filter={}, sort=(("price", 1),), limit=3)
    async with running(mongo_url) as quaestor, await quaestor.subscribe(query) as live:
        whole = await anext(live)
        assert isinstance(whole, Whole)
        assert [document["_id"] for document in whole.documents] == [1, 2, 3]
        items.insert_one({"_id": 0, "price": 5})
        out, into = await event(live), await event(live)
        assert (out.match_type, out.key, out.previous_index, out.operation) == (MatchType.REMOVE, 3, 2, None)
        assert (into.match_type, into.key, into.index) == (MatchType.ADD, 0, 0)
        items.update_one({"_id": 0}, {"$set": {"price": 15}})
        moved = await event(live)
        assert (moved.match_type, moved.previous_index, moved.index) == (MatchType.CHANGE_INDEX, 0, 1)
        items.delete_one({"_id": 1})
        gone, pulled = await event(live), await event(live)
        assert (gone.match_type, gone.key) == (MatchType.REMOVE, 1)
        assert (pulled.match_type, pulled.key, pulled.index) == (MatchType.ADD, 3, 2)
        assert [document["_id"] for _, document in live.rows()] == [0, 2, 3]


async def test_groups_are_followed(mongo_url: str, items: Collection) -> None:
    group = {"$group": {"_id": "$kind", "total": {"$sum": "$n"}}}
    query = Query(namespace=items.full_name, operation=Operation.AGGREGATE, filter={}, pipeline=(group,))
    async with running(mongo_url) as quaestor, await quaestor.subscribe(query) as live:
        assert (await anext(live)).rows == ()  # type: ignore[union-attr]
        items.insert_one({"kind": "tea", "n": 3})
        assert (await event(live)).document == {"_id": "tea", "total": 3}
        items.insert_one({"kind": "tea", "n": 4})
        changed = await event(live)
        assert changed.match_type is MatchType.CHANGE
        assert changed.document == {"_id": "tea", "total": 7}


async def test_how_fresh_a_result_is_goes_on_while_nothing_changes(mongo_url: str, items: Collection) -> None:
    query = Query(namespace=items.full_name, operation=Operation.COUNT, filter={})
    async with running(mongo_url) as quaestor, await quaestor.subscribe(query) as live:
        await eventually(lambda: live.fresh_as_of_ms > 0)
        before = live.fresh_as_of_ms
        await eventually(lambda: live.fresh_as_of_ms > before)


async def test_a_text_search_is_followed_by_its_index(mongo_url: str, items: Collection) -> None:
    """The definition of the text index is looked up for the subscriber."""
    items.create_index([("words", "text")])
    query = Query(namespace=items.full_name, operation=Operation.FIND, filter={"$text": {"$search": "running"}})
    async with running(mongo_url) as quaestor, await quaestor.subscribe(query) as live:
        await anext(live)
        items.insert_many([{"_id": 1, "words": "he walks"}, {"_id": 2, "words": "she runs"}])
        assert (await event(live)).key == 2


async def test_views_are_refused_and_so_is_following_without_a_grid(mongo_url: str, items: Collection) -> None:
    items.insert_one({})
    items.database.create_collection("shown", viewOn="items", pipeline=[])
    query = Query(namespace=f"{items.database.name}.shown", operation=Operation.FIND, filter={})
    async with running(mongo_url) as quaestor:
        with pytest.raises(UnsupportedQueryError, match="view"):
            await quaestor.subscribe(query)
    with pytest.raises(ConfigurationError, match="without a grid"):
        await Quaestor(grid=False, explicit=True).subscribe(query)
