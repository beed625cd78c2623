"""One app on flights, written to by another program, with clients that a test makes wherever it likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import beanie
import httpx
from fastapi import FastAPI
from pymongo import AsyncMongoClient, MongoClient

from tests.support import eventually

Async = AsyncMongoClient[dict[str, Any]]
Sync = MongoClient[dict[str, Any]]


class Flight(beanie.Document):
    id: int  # type: ignore[assignment]
    origin: str
    n: int

    class Settings:
        name = "flights"


@asynccontextmanager
async def alive(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Requests to an app whose lifespan runs, as a server would run it."""
    to_app: asyncio.Queue[Any] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.create_task(app({"type": "lifespan", "state": {}}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:
            yield http
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
        await life


@contextmanager
def written(mongo_url: str, database: str) -> Iterator[Sync]:
    """The database as another program writes to it: a flight from JFK and one from EWR. Not captured."""
    with MongoClient[dict[str, Any]](mongo_url) as other:
        other[database].flights.insert_many([{"_id": 1, "origin": "JFK", "n": 0}, {"_id": 2, "origin": "EWR", "n": 0}])
        yield other
        other.drop_database(database)


async def get(http: httpx.AsyncClient, path: str) -> httpx.Response:
    response = await http.get(path)
    assert response.status_code == 200, response.text
    return response


async def is_hit(http: httpx.AsyncClient, path: str) -> bool:
    return "; hit" in (await get(http, path)).headers["cache-status"]


async def becomes_exact(http: httpx.AsyncClient, other: Sync, database: str) -> None:
    """Both answers become hits; a write changes the one that shows it, and the other stays."""
    for path in ("/JFK", "/EWR"):
        await eventually(lambda path=path: is_hit(http, path))  # type: ignore[misc]
    other[database].flights.update_one({"_id": 1}, {"$set": {"n": 1}})

    async def shown() -> bool:
        return bool((await get(http, "/JFK")).json() == [1])

    await eventually(shown)
    assert await is_hit(http, "/EWR")


def page(app: FastAPI, read: Callable[[str], Awaitable[list[int]]]) -> None:
    @app.get("/{origin}")
    async def flights(origin: str) -> list[int]:
        return await read(origin)


async def numbers(client: Async, database: str, origin: str) -> list[int]:
    return [flight["n"] async for flight in client[database].flights.find({"origin": origin})]
