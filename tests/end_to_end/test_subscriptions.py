"""Subscriptions of an application in embedded mode, on a real mongod: `await quaestor.subscribe(query)` and what follows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pymongo
import pytest
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.errors import ConfigurationError, SubscriptionError
from quaestor.incremental import ResultEvent, replay
from quaestor.model import MatchType, Operation, Query
from quaestor.realtime.live import LiveResult, Whole
from quaestor.realtime.notices import DeliveryChanged, DeliveryMode
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

Collection = pymongo.collection.Collection[dict[str, Any]]


@pytest.fixture
def items(mongo_url: str, prefix: str) -> Any:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        yield client[prefix].items
        client.drop_database(prefix)


def with_images(items: Collection, *, enabled: bool = True) -> None:
    """The collection, which records images before and after each write from now on, or no longer."""
    database = items.database
    if items.name not in database.list_collection_names():
        database.create_collection(items.name)
    database.command("collMod", items.name, changeStreamPreAndPostImages={"enabled": enabled})


def of_one_tag(items: Collection, **window: Any) -> Query:
    return Query(namespace=items.full_name, operation=Operation.FIND, filter={"tag": "tea"}, **window)


@asynccontextmanager
async def attached(mongo_url: str, **settings: Any) -> AsyncIterator[Quaestor]:
    """A Quaestor with a client of its own, not started yet; stopped in the end."""
    quaestor = Quaestor(**PATIENT | settings)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    await client.admin.command("ping")
    try:
        yield quaestor
    finally:
        await quaestor.stop()
        await client.close()


@asynccontextmanager
async def running(mongo_url: str, **settings: Any) -> AsyncIterator[Quaestor]:
    async with attached(mongo_url, **settings) as quaestor:
        await quaestor.start()
        yield quaestor


async def event(live: LiveResult) -> ResultEvent:
    change = await anext(live)
    assert isinstance(change, ResultEvent)
    return change


async def test_a_subscriber_receives_the_result_and_then_its_changes(mongo_url: str, items: Collection) -> None:
    """A sorted window reports records pushed out, pulled in and moved, by index."""
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


def stages() -> int:
    return sum(thread.name == "quaestor-stage" for thread in threading.enumerate())


async def test_a_stage_runs_from_the_first_subscription_on(mongo_url: str, items: Collection) -> None:
    """An app without subscriptions has no thread for them. Started again after its stop, it has none until the next."""
    before, query = stages(), of_one_tag(items)
    async with attached(mongo_url) as quaestor:
        for number in range(2):
            await quaestor.start()
            assert stages() == before
            async with await quaestor.subscribe(query) as live, await quaestor.subscribe(query):
                assert stages() == before + 1
                assert len((await anext(live)).rows) == number  # type: ignore[union-attr]
                items.insert_one({"tag": "tea"})
                assert (await event(live)).match_type is MatchType.ADD
            await quaestor.stop()
            assert stages() == before


async def test_a_subscription_that_is_made_before_the_start_has_its_stage(mongo_url: str, items: Collection) -> None:
    items.insert_one({"tag": "tea"})
    async with attached(mongo_url) as quaestor:
        early = asyncio.create_task(quaestor.subscribe(of_one_tag(items)))
        await eventually(lambda: quaestor.subscriptions._used or early.done())  # it waits for the grid's shape
        await quaestor.start()
        async with await early as live:
            assert len((await anext(live)).rows) == 1  # type: ignore[union-attr]


async def test_a_pipeline_with_groups_is_followed(mongo_url: str, items: Collection) -> None:
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


async def test_following_without_a_grid_is_refused(items: Collection) -> None:
    query = Query(namespace=items.full_name, operation=Operation.FIND, filter={})
    with pytest.raises(ConfigurationError, match="without a grid"):
        await Quaestor(grid=False, explicit=True).subscribe(query)


@pytest.mark.parametrize("window", [{}, {"sort": (("n", 1),), "limit": 50}], ids=["unordered", "window"])
async def test_with_post_images_every_change_is_delivered_once_and_in_order(
    mongo_url: str, items: Collection, window: dict[str, Any]
) -> None:
    """At any rate of writes, 200 updates are 200 events, and 50 adds and 50 removes are a hundred."""
    with_images(items)
    items.insert_many([{"_id": "counter", "tag": "tea", "n": 0}, {"_id": "guest", "tag": "milk", "n": 0}])
    query = of_one_tag(items, **window)
    async with running(mongo_url) as quaestor, await quaestor.subscribe(query, delivery="exact") as live:
        whole = await anext(live)
        assert isinstance(whole, Whole)
        assert whole.delivery is live.delivery is DeliveryMode.EXACT
        items.bulk_write([pymongo.UpdateOne({"_id": "counter"}, {"$inc": {"n": 1}}) for _ in range(200)])
        assert [(await event(live)).document["n"] for _ in range(200)] == list(range(1, 201))
        items.bulk_write([pymongo.UpdateOne({"_id": "guest"}, {"$set": {"tag": tag}}) for tag in ("tea", "milk") * 50])
        match_types = [(await event(live)).match_type for _ in range(100)]
        assert match_types == [MatchType.ADD, MatchType.REMOVE] * 50


async def test_without_post_images_it_says_so_and_the_last_state_is_right(mongo_url: str, items: Collection) -> None:
    items.insert_many([{"_id": "counter", "tag": "tea", "n": 0}, {"_id": "guest", "tag": "milk"}])
    async with running(mongo_url) as quaestor, await quaestor.subscribe(of_one_tag(items)) as live:
        whole = await anext(live)
        assert isinstance(whole, Whole)
        assert whole.delivery is live.delivery is DeliveryMode.STATE
        items.bulk_write([pymongo.UpdateOne({"_id": "counter"}, {"$inc": {"n": 1}}) for _ in range(200)])
        items.bulk_write([pymongo.UpdateOne({"_id": "guest"}, {"$set": {"tag": tag}}) for tag in ("tea", "milk") * 50])
        shown = list(whole.rows)
        while shown != [("counter", {"_id": "counter", "tag": "tea", "n": 200})]:
            shown = replay(shown, [await event(live)])


async def test_exact_delivery_is_refused_with_the_command_that_mends_it(mongo_url: str, items: Collection) -> None:
    """Exact delivery is granted once that command has been run, also while others follow the same query without it."""
    items.insert_one({"_id": 1, "tag": "tea"})
    query = of_one_tag(items)
    async with running(mongo_url) as quaestor:
        with pytest.raises(ConfigurationError, match="'twice'"):
            await quaestor.subscribe(query, delivery="twice")
        with pytest.raises(SubscriptionError, match=f"collMod: '{items.name}'.*enabled: true") as refused:
            await quaestor.subscribe(query, delivery="exact")
        assert items.database.name in str(refused.value)
        assert not refused.value.retryable
        async with await quaestor.subscribe(query) as other:
            assert isinstance(await anext(other), Whole)
            with pytest.raises(SubscriptionError, match="collMod"):
                await quaestor.subscribe(query, delivery="exact")
            with_images(items)
            async with await quaestor.subscribe(query, delivery="exact") as live:
                whole = await anext(live)
                assert isinstance(whole, Whole)
                assert whole.delivery is DeliveryMode.EXACT
                assert await anext(other) == DeliveryChanged(delivery=DeliveryMode.EXACT, lacking=())


async def test_a_join_is_exact_if_all_its_collections_record_images(mongo_url: str, items: Collection) -> None:
    with_images(items)
    lookup = {"$lookup": {"from": "kinds", "localField": "kind", "foreignField": "_id", "as": "kinds"}}
    query = Query(namespace=items.full_name, operation=Operation.AGGREGATE, filter={}, pipeline=(lookup,))
    items.database.kinds.insert_one({"_id": 1})
    async with running(mongo_url) as quaestor:
        with pytest.raises(SubscriptionError, match="collMod: 'kinds'") as refused:
            await quaestor.subscribe(query, delivery="exact")
        assert f"collMod: '{items.name}'" not in str(refused.value)
        with_images(items.database.kinds)
        async with await quaestor.subscribe(query, delivery="exact") as live:
            assert live.delivery is DeliveryMode.EXACT


async def test_post_images_that_are_switched_off_end_exact_delivery(mongo_url: str, items: Collection) -> None:
    """The first update without an image ends exact delivery: exact subscribers receive the reason, others the new mode."""
    with_images(items)
    items.insert_one({"_id": 1, "tag": "tea", "n": 0})
    query = of_one_tag(items)
    async with (
        running(mongo_url) as quaestor,
        await quaestor.subscribe(query, delivery="exact") as exact,
        await quaestor.subscribe(query) as any_,
    ):
        assert isinstance(await anext(exact), Whole)
        assert isinstance(await anext(any_), Whole)
        with_images(items, enabled=False)
        items.update_one({"_id": 1}, {"$set": {"n": 1}})
        assert (await event(exact)).document["n"] == (await event(any_)).document["n"] == 1
        lost = DeliveryChanged(delivery=DeliveryMode.STATE, lacking=(items.full_name,))
        assert await anext(any_) == await anext(exact) == lost
        with pytest.raises(SubscriptionError, match="collMod"):
            await anext(exact)
        items.update_one({"_id": 1}, {"$set": {"n": 2}})
        assert (await event(any_)).document["n"] == 2
