"""Exactness through the whole product: which writes invalidate a cached answer, and which do not.

Searches, nearest places, projections without pre-images, pipelines that shape records, capped collections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

Records = list[dict[str, Any]]
Database = pymongo.database.Database[dict[str, Any]]


class Site:
    """Cached routes over one database."""

    def __init__(self, mongo_url: str, name: str) -> None:
        self.quaestor = Quaestor(debug_header=True, ttl_min_ms=600_000, **PATIENT)  # nothing may expire by itself
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        app = FastAPI()
        app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)
        database = self.client[name]
        search = {"$text": {"$search": "dogs"}}
        by_score = {"$meta": "textScore"}

        @app.get("/found")
        async def found() -> Records:
            return await database.articles.find(search).sort("_id").to_list()

        @app.get("/best")
        async def best() -> Records:
            cursor = database.articles.find(search, {"score": by_score}).sort([("score", by_score)])
            return await cursor.limit(2).to_list()

        @app.get("/view")
        async def view() -> Records:
            return await database.dogs.find({}).sort("_id").to_list()

        @app.get("/log")
        async def log() -> Records:
            return await database.log.find({"n": {"$lt": 3}}).to_list()

        @app.get("/names")
        async def names() -> Records:
            return await database.places.find({"open": True}, {"name": 1}).sort("_id").to_list()

        @app.get("/nearest")
        async def nearest() -> Records:
            near = {"$near": {"$geometry": {"type": "Point", "coordinates": [0, 0]}}}
            return await database.places.find({"at": near, "open": True}, {"views": 0}).limit(2).to_list()

        @app.get("/dressed")
        async def dressed() -> Records:
            stages = [
                {"$match": {"open": True}},
                {"$project": {"rank": 1, "shout": {"$toUpper": "$name"}}},
                {"$sort": {"rank": 1, "_id": 1}},
                {"$limit": 2},
            ]
            return await (await database.places.aggregate(stages)).to_list()

        @app.get("/mark")
        async def mark() -> int:
            return await database.marks.count_documents({"a": 1})

        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")

    async def get(self, path: str) -> tuple[Any, bool]:
        """The answer, and whether it is a hit."""
        response = await self.http.get(path)
        assert response.status_code == 200, response.text
        return response.json(), "; hit" in response.headers.get("cache-status", "")

    async def warm(self, path: str) -> Any:
        answer: Any = None

        async def hit() -> bool:
            nonlocal answer
            answer, is_hit = await self.get(path)
            return is_hit

        await eventually(hit)
        return answer

    async def becomes(self, path: str, ids: list[int]) -> None:
        async def so() -> bool:
            return [record["_id"] for record in (await self.get(path))[0]] == ids

        await eventually(so)

    async def through(self, database: Database) -> None:
        """Every write up to now has been matched."""
        marks = await self.warm("/mark")
        database.marks.insert_one({"a": 1})

        async def seen() -> bool:
            return bool((await self.get("/mark"))[0] == marks + 1)

        await eventually(seen)


@asynccontextmanager
async def site(mongo_url: str, name: str) -> AsyncIterator[tuple[Site, Database]]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        database = other[name]
        database.articles.insert_many(
            [{"_id": 1, "title": "Dogs"}, {"_id": 2, "title": "Cats"}, {"_id": 3, "title": "cats and a dog"}]
        )
        database.articles.create_index([("title", "text")])
        database.create_collection("dogs", viewOn="articles", pipeline=[{"$match": {"$text": {"$search": "dog"}}}])
        database.create_collection("log", capped=True, size=4096, max=4)
        database.log.insert_many([{"_id": n, "n": n} for n in range(4)])
        database.places.insert_many(
            [{"_id": n, "open": True, "name": f"p{n}", "rank": n, "at": [n, 0], "views": 0} for n in range(1, 5)]
        )
        database.places.create_index([("at", "2dsphere")])
        made = Site(mongo_url, name)
        try:
            yield made, database
        finally:
            await made.http.aclose()
            await made.quaestor.stop()
            await made.client.close()
            other.drop_database(name)


@pytest.mark.parametrize("path", ["/found", "/best", "/view"])
async def test_a_search_is_invalidated_by_its_words_and_nothing_else(mongo_url: str, prefix: str, path: str) -> None:
    async with site(mongo_url, prefix) as (app, database):
        known = await app.warm(path)
        assert [record["_id"] for record in known] == [1, 3]
        database.articles.insert_one({"_id": 4, "title": "birds"})
        database.articles.update_one({"_id": 2}, {"$set": {"title": "tame cats"}})
        await app.through(database)
        assert await app.get(path) == (known, True)
        database.articles.insert_one({"_id": 5, "title": "a dog's life with three other dogs"})
        await app.becomes(path, {"/best": [5, 1]}.get(path, [1, 3, 5]))


async def test_a_search_is_invalidated_when_its_text_index_changes(mongo_url: str, prefix: str) -> None:
    async with site(mongo_url, prefix) as (app, database):
        database.articles.update_one({"_id": 2}, {"$set": {"body": "no dogs"}})
        await app.warm("/found")
        database.articles.drop_index("title_text")
        database.articles.create_index([("body", "text")])
        await app.becomes("/found", [2])

        async def titles_do_not_matter() -> bool:
            await app.warm("/found")
            database.articles.insert_one({"title": "dogs"})
            await app.through(database)
            return (await app.get("/found"))[1]

        await eventually(titles_do_not_matter)  # at once, unless the catalog notices only now that the index is another
        database.articles.insert_one({"_id": 7, "body": "dog"})
        await app.becomes("/found", [2, 7])


async def test_without_images_what_an_update_touched_tells(mongo_url: str, prefix: str) -> None:
    """A counter that nobody shows leaves every answer alone, also of its members."""
    async with site(mongo_url, prefix) as (app, database):
        known = {path: await app.warm(path) for path in ("/names", "/nearest", "/dressed")}
        database.places.update_many({}, {"$inc": {"views": 1}})
        await app.through(database)
        for path, answer in known.items():
            assert await app.get(path) == (answer, True), path
        database.places.update_one({"_id": 1}, {"$set": {"name": "first"}})
        for path, answer in known.items():
            await eventually(lambda path=path, answer=answer: _differs(app, path, answer))  # type: ignore[misc]


async def test_records_behind_the_last_member_change_nothing(mongo_url: str, prefix: str) -> None:
    async with site(mongo_url, prefix) as (app, database):
        known = {path: await app.warm(path) for path in ("/nearest", "/dressed")}
        database.places.insert_one({"_id": 9, "open": True, "name": "far", "rank": 9, "at": [2.1, 0]})
        database.places.update_one({"_id": 4}, {"$set": {"at": [-3, 0], "rank": 3}})
        database.places.delete_one({"_id": 3})
        await app.through(database)
        for path, answer in known.items():
            assert await app.get(path) == (answer, True), path
        database.places.update_one({"_id": 9}, {"$set": {"at": [0.5, 0], "rank": 0}})
        for path in known:
            await app.becomes(path, [9, 1])


async def _differs(app: Site, path: str, answer: Any) -> bool:
    return bool((await app.get(path))[0] != answer)


async def test_a_record_dropped_by_a_capped_collection_invalidates(mongo_url: str, prefix: str) -> None:
    """No client deleted the record, but the collection dropped it."""
    async with site(mongo_url, prefix) as (app, database):
        assert [record["_id"] for record in await app.warm("/log")] == [0, 1, 2]
        database.log.insert_one({"_id": 9, "n": 9})
        await app.becomes("/log", [1, 2])
