"""An order that an index decides: a field that no query names, but that a compound index orders its result by, matters."""

from __future__ import annotations

from typing import Any

import pymongo
import pytest
from starlette.requests import Request

from tests.inputs.app import App, Asynchronous, Page, app

pytestmark = pytest.mark.anyio

SHOWN = {"_id": 1, "name": 1}
RECORDS = [{"_id": name, "name": name, "kind": 1, "rank": rank} for rank, name in enumerate("abcd")]


async def projected(items: Asynchronous, request: Request) -> Any:
    return await items.find({"kind": 1}, SHOWN).to_list()


async def limited(items: Asynchronous, request: Request) -> Any:
    return await items.find({"kind": 1}, SHOWN).limit(2).to_list()


async def some(items: Asynchronous, request: Request) -> Any:
    return await items.find({"kind": 1, "name": {"$gt": "a"}}).limit(2).to_list()


async def later(items: Asynchronous, request: Request) -> Any:
    return await items.find({"kind": 1}).skip(1).limit(2).to_list()


async def tied(items: Asynchronous, request: Request) -> Any:
    return await items.find({}, SHOWN).sort("kind", 1).to_list()


async def page(items: Asynchronous, request: Request) -> Any:
    return await items.find({}).sort("kind", 1).skip(2).limit(1).to_list()


async def among(items: Asynchronous, request: Request) -> Any:
    """Sorted by what all have alike."""
    return await items.find({"kind": {"$in": [1, 2]}}, SHOWN).sort("level", 1).to_list()


async def pushed(items: Asynchronous, request: Request) -> Any:
    group = {"$group": {"_id": "$kind", "names": {"$push": "$name"}}}
    return await (await items.aggregate([{"$match": {"kind": 1}}, group])).to_list()


async def first(items: Asynchronous, request: Request) -> Any:
    group = {"$group": {"_id": "$kind", "first": {"$first": "$name"}, "last": {"$last": "$name"}}}
    return await (await items.aggregate([{"$match": {"kind": 1}}, {"$sort": {"kind": 1}}, group])).to_list()


async def summed(items: Asynchronous, request: Request) -> Any:
    group = {"$group": {"_id": "$kind", "n": {"$sum": 1}}}
    return await (await items.aggregate([{"$match": {"kind": 1}}, group, {"$sort": {"_id": 1}}])).to_list()


async def by_id(items: Asynchronous, request: Request) -> Any:
    return await items.find({"kind": 1}, SHOWN).sort([("kind", 1), ("_id", 1)]).to_list()


async def latest(items: Asynchronous, request: Request) -> Any:
    """Evicted by any write: what came before it is through when this one is new."""
    return await items.find_one({"_id": "d"}, {"probe": 1})


PAGES: dict[str, Page] = {
    "/projected": projected, "/limited": limited, "/tied": tied, "/page": page, "/pushed": pushed, "/first": first,
    "/summed": summed, "/by-id": by_id, "/latest": latest,
    "/some": some, "/later": later, "/among": among,
}  # fmt: skip
MOVED = ["/projected", "/limited", "/some", "/later", "/tied", "/page", "/pushed", "/first"]


def to_the_front(cached: App) -> None:
    """The last record by rank becomes the first."""
    cached.items.update_one({"_id": "d"}, {"$set": {"rank": -1}})


async def through(cached: App) -> None:
    """Wait until every write so far has taken effect."""
    await cached.warm("/latest")
    cached.items.update_one({"_id": "d"}, {"$inc": {"probe": 1}})
    await cached.until_true("/latest")


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("path", MOVED)
async def test_a_change_of_a_hidden_field_that_the_index_orders_by_is_seen(
    mongo_url: str, prefix: str, settings: dict[str, Any], path: str, images: bool
) -> None:
    async with app(mongo_url, prefix, PAGES, **settings) as cached:
        cached.items.database.create_collection("items", changeStreamPreAndPostImages={"enabled": images})
        cached.items.create_index([("kind", 1), ("rank", 1)])
        cached.items.insert_many(RECORDS)
        before = await cached.warm(path)
        to_the_front(cached)
        assert await cached.truth(path) != before, "the database chose another order: this test shows nothing"
        await cached.until_true(path)


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize("images", [False, True])
async def test_equal_records_change_places_with_what_the_filter_finds_them_by(
    mongo_url: str, prefix: str, settings: dict[str, Any], images: bool
) -> None:
    """An index on one field is enough: what is found by it comes in its order, and a sort leaves equals in that."""
    async with app(mongo_url, prefix, PAGES, **settings) as cached:
        cached.items.database.create_collection("items", changeStreamPreAndPostImages={"enabled": images})
        cached.items.create_index("kind")
        cached.items.insert_many(RECORDS)
        before = await cached.warm("/among")
        cached.items.update_one({"_id": "a"}, {"$set": {"kind": 2}})
        assert await cached.truth("/among") != before, "the database chose another order: this test shows nothing"
        await cached.until_true("/among")


@pytest.mark.usefixtures("patient_redis")
@pytest.mark.parametrize(
    ("path", "indexed"),
    [
        ("/projected", False),
        ("/limited", False),
        ("/some", False),
        ("/later", False),
        ("/pushed", False),
        ("/summed", True),
        ("/by-id", True),
    ],
)
async def test_where_no_index_orders_by_it_the_answer_stays(
    mongo_url: str, prefix: str, settings: dict[str, Any], path: str, indexed: bool
) -> None:
    """Without a compound index, or where nothing of the order is left open: no more is invalidated than before."""
    async with app(mongo_url, prefix, PAGES, **settings) as cached:
        if indexed:
            cached.items.create_index([("kind", 1), ("rank", 1)])
        cached.items.create_index("rank")
        cached.items.insert_many(RECORDS)
        before = await cached.warm(path)
        to_the_front(cached)
        await through(cached)
        assert await cached.get(path) == (before, "hit")


@pytest.mark.usefixtures("patient_redis")
async def test_an_index_that_is_made_later_counts_from_then_on(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    async with app(mongo_url, prefix, PAGES, **settings) as cached:
        cached.items.insert_many(RECORDS)
        await cached.warm("/projected")
        cached.items.create_index([("kind", pymongo.ASCENDING), ("rank", pymongo.DESCENDING)])
        await cached.until_true("/projected")
        assert [record["_id"] for record in await cached.warm("/projected")] == list("dcba")
        cached.items.update_one({"_id": "d"}, {"$set": {"rank": -1}})
        await cached.until_true("/projected")


@pytest.mark.usefixtures("patient_redis")
async def test_an_index_that_is_hidden_or_shown_again_counts(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """Which order the database finds changes with it, and nothing is written."""
    keys = {"kind": 1, "rank": -1}
    async with app(mongo_url, prefix, PAGES, **settings) as cached:
        cached.items.insert_many(RECORDS)
        cached.items.create_index(list(keys.items()))
        for hidden, order in ((True, "abcd"), (False, "dcba")):
            await cached.warm("/projected")
            cached.items.database.command("collMod", "items", index={"keyPattern": keys, "hidden": hidden})
            await cached.until_true("/projected")
            assert [record["_id"] for record in await cached.warm("/projected")] == list(order)
        to_the_front(cached)
        await cached.until_true("/projected")


async def whole(items: Asynchronous, request: Request) -> Any:
    """Every field shows, so that the keys of the indexes are not asked for."""
    return await items.find({"kind": 1}).to_list()


async def one(items: Asynchronous, request: Request) -> Any:
    return await items.find_one({"_id": "b"})


async def counted(items: Asynchronous, request: Request) -> Any:
    return await items.count_documents({"kind": 1})


async def elsewhere(items: Asynchronous, request: Request) -> Any:
    """Return records by a condition on the name, for which no index by the kind is used."""
    return await items.find({"name": {"$gt": "a"}}, SHOWN).to_list()


async def beside(items: Asynchronous, request: Request) -> Any:
    """Of another collection: what came before a change of it is through when this one is new."""
    return await items.database.beside.find_one({"_id": 1})


ORDERED_BY_IT: dict[str, Page] = {"/projected": projected, "/whole": whole}
NOT_ORDERED_BY_IT: dict[str, Page] = {
    "/one": one, "/counted": counted, "/by-id": by_id, "/summed": summed, "/elsewhere": elsewhere,
}  # fmt: skip
BESIDE: dict[str, Page] = {"/beside": beside}


async def listed_twice(cached: App) -> None:
    """Wait until the indexes were listed twice, so that a change is reported twice, and every event has taken effect."""
    await cached.warm("/beside")
    for _ in range(2):
        await cached.quaestor.parts.read_path.look_up_definitions()
    cached.items.database.beside.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
    await cached.until_true("/beside")


@pytest.mark.usefixtures("patient_redis")
async def test_an_index_ends_what_it_may_order_once_and_nothing_else(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    keys = {"kind": 1, "rank": -1}
    async with app(mongo_url, prefix, ORDERED_BY_IT | NOT_ORDERED_BY_IT | BESIDE, **settings) as cached:
        cached.items.insert_many(RECORDS)
        cached.items.database.beside.insert_one({"_id": 1})
        await listed_twice(cached)
        lasting = {path: await cached.warm(path) for path in NOT_ORDERED_BY_IT}

        async def changes_nothing_else() -> None:
            """The order is the new one, and what has it stays when the same change is reported again."""
            for path in ORDERED_BY_IT:
                await cached.until_true(path)
            await listed_twice(cached)
            ordered = {path: await cached.warm(path) for path in ORDERED_BY_IT}
            await listed_twice(cached)
            for path, answer in (ordered | lasting).items():
                assert await cached.get(path) == (answer, "hit"), path

        for path in ORDERED_BY_IT:
            await cached.warm(path)
        cached.items.create_index(list(keys.items()))
        await changes_nothing_else()
        assert [record["_id"] for record in await cached.warm("/projected")] == list("dcba")
        cached.items.create_index("other")
        await listed_twice(cached)
        assert (await cached.get("/whole"))[1] == "hit", "an index by another field does not find it"
        for answer in lasting:
            assert (await cached.get(answer))[1] == "hit"
        cached.items.drop_index("kind_1_rank_-1")
        await changes_nothing_else()
        assert [record["_id"] for record in await cached.warm("/projected")] == list("abcd")
