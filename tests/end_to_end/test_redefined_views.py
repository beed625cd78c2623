"""A view that is defined anew ends the answers that were read through it, by the database's event, without any listing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.capture.catalog import Catalog
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(mongo_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """A page that reads through a view on a view, in an application whose catalog never polls."""

    async def never(self: Catalog, *_: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Catalog, "run", never)
    quaestor, app = Quaestor(mongo_url=mongo_url, deployment=prefix, **PATIENT), FastAPI()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/shown")
    async def shown() -> list[int]:
        return [record["_id"] async for record in client[prefix].shown.find().sort("_id", 1)]

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:
        yield http
    await quaestor.stop()
    await client.close()


def _define(database: Any, name: str, on: str, condition: dict[str, Any]) -> None:
    database.command("collMod", name, viewOn=on, pipeline=[{"$match": condition}])


@pytest.mark.parametrize(
    ("change", "shows"),
    [
        (lambda d: _define(d, "shown", "low", {"n": 2}), [2]),
        (lambda d: _define(d, "low", "c", {"_id": {"$gt": 2}}), [4]),
        (lambda d: _define(d, "low", "other", {}), [10]),
        (lambda d: d.drop_collection("low"), []),
        (lambda d: (d.drop_collection("shown"), d.shown.insert_one({"_id": 7})), [7]),
    ],
    ids=["the view", "the view below", "onto another collection", "dropped below", "a collection instead"],
)
async def test_a_view_defined_anew_ends_what_was_read_through_it(
    site: httpx.AsyncClient, mongo_url: str, prefix: str, change: Callable[[Any], object], shows: list[int]
) -> None:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        database = client[prefix]
        database.c.insert_many([{"_id": key, "n": key % 3} for key in range(5)])
        database.other.insert_one({"_id": 10, "n": 1})
        database.create_collection("low", viewOn="c", pipeline=[{"$match": {"_id": {"$lt": 4}}}])
        database.create_collection("shown", viewOn="low", pipeline=[{"$match": {"n": 1}}])

        async def hit() -> bool:
            answer = await site.get("/shown")
            return "; hit" in answer.headers.get("cache-status", "") and answer.json() == [1]

        async def changed() -> bool:
            return bool((await site.get("/shown")).json() == shows)

        await eventually(hit)
        change(database)
        await eventually(changed)
        client.drop_database(prefix)
