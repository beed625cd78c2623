"""Rechecking: after a write that may have changed a widened query's result, the query runs again and an unchanged answer
lives on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.capture.rereading import Reread
from quaestor.errors import DatabaseError
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Query
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

Items = pymongo.collection.Collection[dict[str, Any]]
MOST = [
    {"$match": {"group": "a"}},
    {"$lookup": {"from": "notes", "localField": "_id", "foreignField": "item", "as": "notes"}},
    {"$group": {"_id": "$tag", "most": {"$max": "$price"}, "notes": {"$sum": {"$size": "$notes"}}}},
    {"$sort": {"_id": 1}},
]


class Worker:
    """One app process: a Quaestor of its own before an application of its own."""

    def __init__(self, quaestor: Quaestor, http: httpx.AsyncClient) -> None:
        self.quaestor = quaestor
        self.http = http
        self.runs = 0

    async def get(self, path: str = "/most") -> tuple[Any, bool]:
        response = await self.http.get(path)
        return response.json(), "; hit" in response.headers.get("cache-status", "")

    async def hit(self, path: str = "/most") -> bool:
        return (await self.get(path))[1]

    def rechecks(self, outcome: str) -> float:
        count: float = self.quaestor.telemetry.invalidations.rechecks.labels(outcome)._value.get()
        return count


@asynccontextmanager
async def worker(mongo_url: str, database: str, **settings: Any) -> AsyncIterator[Worker]:
    app = FastAPI()
    settings = PATIENT | {"heartbeat_ms": 20, "ttl_min_ms": 600_000, "recheck": "on", "recheck_ms": 5_000} | settings
    quaestor = Quaestor(**settings)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")
    made = Worker(quaestor, http)

    @app.get("/most")
    async def most() -> list[Any]:
        made.runs += 1
        return await (await client[database].items.aggregate(MOST)).to_list()

    @app.get("/view")
    async def view() -> list[Any]:
        made.runs += 1
        return await client[database].doubled.find({"group": "a"}, {"price": 1}).sort("_id", 1).to_list()

    try:
        yield made
    finally:
        await http.aclose()
        await quaestor.stop()
        await client.close()


@pytest.fixture
def items(mongo_url: str, prefix: str) -> Any:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        records: Items = other[prefix].items
        records.insert_many([{"_id": key, "group": "ab"[key % 2], "price": key, "tag": key % 3} for key in range(20)])
        other[prefix].notes.insert_one({"_id": 0, "item": 2})
        yield records
        other.drop_database(prefix)


async def matched(process: Worker, items: Items) -> None:
    """Returns when every write so far was matched, and acted on here."""
    time = items.database.command("ping")["operationTime"]
    version = time.time << 32 | time.inc
    items.database.marks.insert_one({})
    await eventually(lambda: process.quaestor.registry.watermark() > version)


def _harmless(items: Items) -> None:
    """A record that the query reads changes in what it reads, and is not the one that decides."""
    items.update_one({"_id": 2}, {"$inc": {"price": 0.5}})


async def test_an_answer_outlives_a_write_that_leaves_its_result_as_it_is(
    mongo_url: str, prefix: str, items: Items
) -> None:
    """The very next request is a hit, without a run of the handler, and so it is after one more such write."""
    async with worker(mongo_url, prefix) as process:
        await eventually(process.hit)
        runs = process.runs
        for kept in (1, 2, 3):
            _harmless(items)
            await eventually(lambda kept=kept: process.rechecks("kept") == kept)  # type: ignore[misc]
            assert await process.hit()
        assert process.runs == runs


async def test_an_answer_of_a_view_that_computes_outlives_it_too(mongo_url: str, prefix: str, items: Items) -> None:
    """A find on it is known for one when it was answered once."""
    items.database.create_collection(
        "doubled", viewOn="items", pipeline=[*MOST[:2], {"$set": {"price": {"$floor": "$price"}}}]
    )
    async with worker(mongo_url, prefix) as process:
        for change in (0.25, 0.25):
            await eventually(lambda: process.hit("/view"))
            runs = process.runs
            items.update_one({"_id": 2}, {"$inc": {"price": change}})
            await matched(process, items)
        await eventually(lambda: process.rechecks("kept") == 1)
        assert await process.hit("/view")
        assert process.runs == runs
        items.update_one({"_id": 2}, {"$set": {"price": 77}})
        await matched(process, items)
        assert 77 in [row["price"] for row in (await process.get("/view"))[0]]


async def test_a_request_waits_for_the_verdict(mongo_url: str, prefix: str, items: Items) -> None:
    """While the query is run again nothing stored is sent; who asks meanwhile gets the stored answer when it is found good."""
    async with worker(mongo_url, prefix) as process:
        await eventually(process.hit)
        runs, gate = process.runs, Gate(process)
        _harmless(items)
        await eventually(lambda: gate.asked == 1)
        asking = asyncio.create_task(process.get())
        await matched(process, items)
        assert not asking.done()
        gate.open()
        assert (await asking)[1]
        assert process.runs == runs


async def test_a_changed_result_is_never_served_again(mongo_url: str, prefix: str, items: Items) -> None:
    """A request after the write was matched gets the database's present result."""
    async with worker(mongo_url, prefix) as process:
        await eventually(process.hit)
        for price in (100, 200, 300):
            items.update_one({"_id": 2}, {"$set": {"price": price}})
            await matched(process, items)
            answer, _ = await process.get()
            assert max(row["most"] for row in answer) == price
            await eventually(process.hit)
        assert process.rechecks("changed") == 3
        assert process.rechecks("kept") == 0


async def test_a_change_during_a_recheck_counts(mongo_url: str, prefix: str, items: Items) -> None:
    """A write that comes after the query was run again, and before its registration is renewed, ends the answer."""
    async with worker(mongo_url, prefix) as process:
        await eventually(process.hit)
        gate = Gate(process)
        _harmless(items)
        await eventually(lambda: gate.asked == 1)
        items.update_one({"_id": 2}, {"$set": {"price": 500}})
        await matched(process, items)
        gate.open()
        answer, _ = await process.get()
        assert max(row["most"] for row in answer) == 500


async def test_a_renewed_answer_is_guarded(mongo_url: str, prefix: str, items: Items) -> None:
    """After it was kept a change of its result, in either of the collections, ends it like any other."""
    async with worker(mongo_url, prefix) as process:
        await eventually(process.hit)
        _harmless(items)
        await eventually(lambda: process.rechecks("kept") == 1)
        before, _ = await process.get()
        items.database.notes.insert_one({"_id": 1, "item": 2})
        await matched(process, items)
        after, _ = await process.get()
        assert sum(row["notes"] for row in after) == sum(row["notes"] for row in before) + 1


async def test_without_a_verdict_in_time_it_is_evicted(mongo_url: str, prefix: str, items: Items) -> None:
    """A query that takes too long, and one that fails, do not keep anything."""
    for fails in (False, True):
        async with worker(mongo_url, prefix, recheck_ms=50) as process:
            await eventually(process.hit)
            gate = Gate(process, fails=fails)
            runs = process.runs
            _harmless(items)
            await eventually(lambda gate=gate: gate.asked == 1)  # type: ignore[misc]
            await eventually(lambda process=process: process.rechecks("given-up") == 1)  # type: ignore[misc]
            await process.get()
            await eventually(process.hit)
            assert process.runs > runs
            gate.open()


async def test_a_burst_of_writes_is_rechecked_a_few_times_only(mongo_url: str, prefix: str, items: Items) -> None:
    """Beyond a few rechecks, further writes evict the answer at once; the final answer is right."""
    async with worker(mongo_url, prefix) as process:
        await eventually(process.hit)
        for step in range(200):
            items.update_one({"_id": 2}, {"$set": {"price": 1_000 + step}})
        await matched(process, items)
        answer, _ = await process.get()
        assert max(row["most"] for row in answer) == 1_199
        outcomes = ("kept", "changed", "given-up")
        assert sum(process.rechecks(outcome) for outcome in outcomes) <= 60


async def test_nothing_is_rechecked_where_the_setting_forbids_it(mongo_url: str, prefix: str, items: Items) -> None:
    async with worker(mongo_url, prefix, recheck="off") as process:
        await eventually(process.hit)
        _harmless(items)
        await matched(process, items)
        assert not await process.hit()


class Gate:
    """A database that does not answer the queries that are run again until open(), or never does.

    asked: how often it was.
    """

    def __init__(self, process: Worker, *, fails: bool = False) -> None:
        rechecking = process.quaestor.parts.rechecking
        assert rechecking is not None
        assert rechecking._reader is not None
        self.asked = 0
        self._fails = fails
        self._reader = rechecking._reader
        self._open = threading.Event()
        rechecking._reader = self

    def read(self, query: Query) -> Reread:
        self.asked += 1
        if self._fails:
            raise DatabaseError("the database does not answer")
        read = self._reader.read(query)
        self._open.wait(60)
        return read

    def open(self) -> None:
        self._open.set()
