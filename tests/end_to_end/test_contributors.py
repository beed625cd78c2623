"""Counts, pages and values stay in the cache while a write leaves them as they are, on a collection without pre-images."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
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

Items = pymongo.collection.Collection[dict[str, Any]]

_MOST_TRIED = 50
_PATIENCE_S = 60.0
"""Each attempt waits a second longer than the one before it."""


class Site:
    """An embedded Quaestor before an application that counts, pages and lists values, with another writer beside it."""

    def __init__(self, quaestor: Quaestor, http: httpx.AsyncClient, items: Items) -> None:
        self._quaestor = quaestor
        self._ages_s = count(1)
        self._http = http
        self.items = items

    async def get(self, path: str) -> tuple[Any, bool]:
        response = await self._http.get(path)
        return response.json(), "; hit" in response.headers.get("cache-status", "")

    async def survives_aged(self, path: str, write: Callable[[Items], object]) -> bool:
        """Return `survives` for an answer that is some seconds old, each time more.

        The contributors of an answer are read a moment after it was stored, if it still lives then.
        """
        return await self.survives(path, write, aged_s=next(self._ages_s))

    async def survives(self, path: str, write: Callable[[Items], object], *, aged_s: int = 0) -> bool:
        """Whether a stored answer is still one after a write, which every cell has matched by then."""

        async def hit() -> bool:
            response = await self._http.get(path)
            return "; hit" in response.headers.get("cache-status", "") and int(response.headers["age"]) >= aged_s

        await eventually(hit)
        write(self.items)
        time = self.items.database.command("ping")["operationTime"]
        version = time.time << 32 | time.inc
        self.items.database.marks.insert_one({})
        await eventually(lambda: self._quaestor.registry.watermark() > version)
        return (await self.get(path))[1]


@asynccontextmanager
async def site(mongo_url: str, database: str, **settings: Any) -> AsyncIterator[Site]:
    app = FastAPI()
    quaestor = Quaestor(ttl_min_ms=600_000, **PATIENT | {"heartbeat_ms": 20, "recheck": "off"} | settings)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    items = client[database].items

    @app.get("/count")
    async def counted() -> int:
        return await items.count_documents({"group": "a"})

    @app.get("/capped")
    async def capped() -> int:
        return await items.count_documents({"group": "a"}, limit=3)

    @app.get("/tags")
    async def tags() -> list[Any]:
        return await items.distinct("tag", {"group": "a"})

    @app.get("/page")
    async def page() -> list[Any]:
        return await items.find({"group": "a"}).sort([("price", 1), ("_id", 1)]).skip(2).limit(2).to_list()

    @app.get("/dear")
    async def dear() -> list[Any]:
        return await items.find({"group": "a"}, {"dear": {"$gt": ["$price", 9]}}).sort("_id", 1).to_list()

    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        records: Items = other[database].items
        records.insert_many([{"_id": key, "group": "ab"[key % 2], "price": key, "tag": key % 3} for key in range(20)])
        records.insert_many([{"_id": f"foreign {number}", "group": "b"} for number in range(_MOST_TRIED)])
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")
        try:
            yield Site(quaestor, http, records)
        finally:
            await http.aclose()
            await quaestor.stop()
            await client.close()
            other.drop_database(database)


def _foreign(items: Items) -> None:
    """Delete a record on which no answer depends, and whose content no cell knows."""
    assert items.delete_one({"group": "b"}).deleted_count


@pytest.mark.parametrize("path", ["/count", "/capped", "/tags", "/page"])
async def test_an_answer_outlives_writes_that_do_not_change_it(mongo_url: str, prefix: str, path: str) -> None:
    """Soon after it was stored who contributes to it is known, and a deletion elsewhere ends it no more."""
    async with site(mongo_url, prefix) as world:

        async def known() -> bool:
            return await world.survives_aged(path, _foreign)

        await eventually(known, within_s=_PATIENCE_S)
        assert await world.survives(path, lambda items: items.update_one({"_id": 0}, {"$set": {"other": 1}}))


async def test_an_answer_that_changes_is_never_served_again(mongo_url: str, prefix: str) -> None:
    async with site(mongo_url, prefix) as world:

        async def known() -> bool:
            return await world.survives_aged("/count", _foreign)

        await eventually(known, within_s=_PATIENCE_S)
        assert not await world.survives("/count", lambda items: items.delete_one({"_id": 0}))
        assert (await world.get("/count"))[0] == 9


async def test_an_answer_outlives_changes_of_fields_that_it_does_not_show(mongo_url: str, prefix: str) -> None:
    """Values computed from a record are compared, although no pre-image is recorded."""
    async with site(mongo_url, prefix) as world:
        unseen = iter(range(18, 0, -2))

        async def known() -> bool:
            raised = {"$inc": {"price": 0.001}}
            return await world.survives_aged("/dear", lambda items: items.update_one({"_id": next(unseen)}, raised))

        await eventually(known, within_s=_PATIENCE_S)
        assert not await world.survives("/dear", lambda items: items.update_one({"_id": 0}, {"$set": {"price": 10}}))
        assert (await world.get("/dear"))[0][0] == {"_id": 0, "dear": True}


@pytest.mark.parametrize("path", ["/count", "/capped", "/tags", "/page"])
async def test_before_anything_is_known_the_query_is_run_again(mongo_url: str, prefix: str, path: str) -> None:
    """The deletion of an unknown record may have changed the answer. An unchanged answer stays; a changed one goes."""
    async with site(mongo_url, prefix, max_contributors=0, recheck="on") as world:
        assert await world.survives(path, _foreign)
        assert not await world.survives(path, lambda items: items.delete_many({"group": "a", "_id": {"$ne": 0}}))
        assert await world.survives(path, _foreign)


async def test_nothing_is_kept_where_the_setting_forbids_it(mongo_url: str, prefix: str) -> None:
    """Without kept contributors, any deletion in the collection may concern a counted record, so the answer goes."""
    async with site(mongo_url, prefix, max_contributors=0) as world:
        assert not await world.survives_aged("/count", _foreign)
