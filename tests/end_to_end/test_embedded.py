"""A FastAPI app, one middleware line, a real mongod: hits, exact invalidation, and answers when parts fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient, DeleteOne, InsertOne, UpdateOne

import quaestor as package
from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

Collection = pymongo.collection.Collection[dict[str, Any]]


class Site:
    """An app with the issue's handler, its client, and the database as another program would write to it."""

    def __init__(self, mongo_url: str, database: str) -> None:
        self.quaestor = Quaestor(debug_header=True, **PATIENT)
        self.app = FastAPI()
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)
        flights = self.client[database].flights
        self.runs = 0

        @self.app.get("/departures/{origin}")
        async def departures(origin: str, dest: str | None = None, limit: int = 3) -> list[dict[str, Any]]:
            self.runs += 1
            query = {"origin": origin, "status": {"$ne": "departed"}} | ({"dest": dest} if dest else {})
            return await flights.find(query).sort([("scheduled", 1), ("_id", 1)]).limit(limit).to_list()

        @self.app.get("/count/{origin}")
        async def count(origin: str) -> int:
            return await flights.count_documents({"origin": origin})

        @self.app.get("/groups/{origin}")
        async def groups(origin: str) -> list[dict[str, Any]]:
            group = {"$group": {"_id": "$dest", "flights": {"$sum": 1}}}
            cursor = await flights.aggregate([{"$match": {"origin": origin}}, group, {"$sort": {"_id": 1}}])
            return await cursor.to_list()

        @self.app.get("/now")
        async def now() -> list[dict[str, Any]]:
            return await flights.find({"expires": {"$gt": datetime.now(UTC)}}).to_list()

        @self.app.get("/declared")
        async def declared() -> list[dict[str, Any]]:
            package.uncacheable("reads a file")
            return await flights.find({}).to_list()

        @self.app.post("/flights/{key}")
        async def insert(key: int) -> int:
            await flights.insert_one({"_id": key, "origin": "JFK", "scheduled": key})
            return key

        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://site")

    async def get(self, path: str) -> tuple[Any, str]:
        """The answer, and hit, stored or bypass."""
        response = await self.http.get(path)
        assert response.status_code == 200, response.text
        status = response.headers.get("cache-status", "")
        return response.json(), "hit" if "; hit" in status else "stored" if "stored" in status else "bypass"

    async def warm(self, path: str) -> Any:
        """Ask until it is a hit."""
        answer: Any = None

        async def hit() -> bool:
            nonlocal answer
            answer, how = await self.get(path)
            return how == "hit"

        await eventually(hit)
        return answer


@asynccontextmanager
async def site(mongo_url: str, database: str) -> AsyncIterator[tuple[Site, Collection]]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        flights = other[database].flights
        flights.insert_many(
            [{"_id": i, "origin": "JFK", "dest": "LAX", "status": "scheduled", "scheduled": i} for i in range(10)]
            + [
                {"_id": 100 + i, "origin": "EWR", "dest": "SFO", "status": "scheduled", "scheduled": i}
                for i in range(10)
            ]
        )
        made = Site(mongo_url, database)
        try:
            yield made, flights
        finally:
            await made.http.aclose()
            await made.quaestor.stop()
            await made.client.close()
            other.drop_database(database)


WRITES: dict[str, Callable[[Collection], Any]] = {
    "insert": lambda c: c.insert_one({"_id": -1, "origin": "JFK", "status": "scheduled", "scheduled": -1}),
    "update": lambda c: c.update_one({"_id": 1}, {"$set": {"status": "departed"}}),
    "replace": lambda c: c.replace_one({"_id": 1}, {"origin": "JFK", "status": "boarding", "scheduled": 1}),
    "delete": lambda c: c.delete_one({"_id": 0}),
    "update_many": lambda c: c.update_many({"origin": "JFK"}, {"$set": {"gate": "B7"}}),
    "delete_many": lambda c: c.delete_many({"origin": "JFK", "scheduled": {"$lt": 2}}),
    "bulk_write": lambda c: c.bulk_write(
        [UpdateOne({"_id": 2}, {"$inc": {"delay": 5}}), InsertOne({"_id": 999, "origin": "ORD"}), DeleteOne({"_id": 9})]
    ),
    "findAndModify": lambda c: c.find_one_and_update({"_id": 0}, {"$set": {"status": "boarding"}}),
    "pulled in": lambda c: c.update_one({"_id": 103}, {"$set": {"origin": "JFK", "scheduled": -5}}),
    "drop": lambda c: c.drop(),
    "rename": lambda c: c.rename("elsewhere"),
}


@pytest.mark.parametrize("kind", WRITES)
async def test_a_write_that_changes_the_result_evicts_it(mongo_url: str, prefix: str, kind: str) -> None:
    async with site(mongo_url, prefix) as (app, flights):
        before = await app.warm("/departures/JFK")
        WRITES[kind](flights)
        query = {"origin": "JFK", "status": {"$ne": "departed"}}
        truth = list(flights.find(query).sort([("scheduled", 1), ("_id", 1)]).limit(3))
        assert truth != before

        async def new() -> bool:
            return bool((await app.get("/departures/JFK"))[0] == truth)

        await eventually(new)
        assert await app.warm("/departures/JFK") == truth


UNRELATED: dict[str, Callable[[Collection], Any]] = {
    "another airport": lambda c: c.update_one({"_id": 101}, {"$set": {"status": "departed"}}),
    "behind the window": lambda c: c.update_one({"_id": 8}, {"$set": {"gate": "C1"}}),
    "inserted behind the window": lambda c: c.insert_one({"_id": 77, "origin": "JFK", "scheduled": 77}),
    "deleted behind the window": lambda c: c.delete_one({"_id": 9}),
    "does not match": lambda c: c.insert_one({"_id": 78, "origin": "JFK", "status": "departed", "scheduled": 0}),
    "another collection": lambda c: c.database.other.insert_one({"origin": "JFK", "scheduled": 0}),
}


@pytest.mark.parametrize("kind", UNRELATED)
async def test_a_write_that_does_not_change_the_result_leaves_the_hit(mongo_url: str, prefix: str, kind: str) -> None:
    async with site(mongo_url, prefix) as (app, flights):
        await app.warm("/departures/JFK")
        await app.warm("/departures/EWR?limit=1")
        runs = app.runs
        UNRELATED[kind](flights)
        flights.update_one({"_id": 100}, {"$set": {"gate": "A1"}})  # evicts EWR: the writes before it are through then

        async def through() -> bool:
            return (await app.get("/departures/EWR?limit=1"))[0][0].get("gate") == "A1"

        await eventually(through)
        runs = app.runs
        assert (await app.get("/departures/JFK"))[1] == "hit"
        assert app.runs == runs


async def test_answers_that_no_write_can_invalidate_are_not_cached(mongo_url: str, prefix: str) -> None:
    async with site(mongo_url, prefix) as (app, _):
        await app.warm("/departures/JFK")
        for path, reason in (("/now", "clock"), ("/declared", "declared")):
            for _ in range(2):
                response = await app.http.get(path)
                assert "hit" not in response.headers.get("cache-status", "")
                assert reason in response.headers["x-quaestor-explain"]
                assert "no-store" in response.headers["cache-control"]


async def test_a_request_that_wrote_is_not_cached_and_its_write_invalidates(mongo_url: str, prefix: str) -> None:
    async with site(mongo_url, prefix) as (app, _):
        await app.warm("/departures/JFK")
        assert (await app.http.post("/flights/-3")).json() == -3

        async def first() -> bool:
            return bool((await app.get("/departures/JFK"))[0][0]["_id"] == -3)

        await eventually(first)


async def test_counts_are_invalidated_by_inserts_and_deletes(mongo_url: str, prefix: str) -> None:
    async with site(mongo_url, prefix) as (app, flights):
        assert await app.warm("/count/JFK") == 10
        flights.insert_one({"_id": 500, "origin": "JFK"})
        await eventually(lambda: _equals(app, "/count/JFK", 11))
        assert await app.warm("/count/JFK") == 11
        flights.delete_one({"_id": 500})
        await eventually(lambda: _equals(app, "/count/JFK", 10))


async def test_groups_stay_while_nothing_changes_that_they_read(mongo_url: str, prefix: str) -> None:
    """With pre- and post-images on, a write is compared with what was there."""
    async with site(mongo_url, prefix) as (app, flights):
        flights.database.command("collMod", "flights", changeStreamPreAndPostImages={"enabled": True})
        groups = await app.warm("/groups/JFK")
        flights.update_one({"_id": 1}, {"$set": {"gate": "B7"}})
        flights.insert_one({"_id": 900, "origin": "EWR", "scheduled": -9})
        await eventually(lambda: _first_is(app, "/departures/EWR", 900))
        assert await app.get("/groups/JFK") == (groups, "hit")
        flights.update_one({"_id": 1}, {"$set": {"dest": "BOS"}})
        await eventually(lambda: _differs(app, "/groups/JFK", groups))
        assert await app.warm("/groups/JFK") == [{"_id": "BOS", "flights": 1}, {"_id": "LAX", "flights": 9}]


async def _first_is(app: Site, path: str, key: int) -> bool:
    return bool((await app.get(path))[0][0]["_id"] == key)


async def _differs(app: Site, path: str, value: Any) -> bool:
    return bool((await app.get(path))[0] != value)


async def _equals(app: Site, path: str, value: Any) -> bool:
    return bool((await app.get(path))[0] == value)
