"""A GET whose handler writes, also after its answer: run once for each request, neither cached nor run again by the cache."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pymongo
import pytest
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


@dataclass
class Writer:
    """An app whose page reads its items and counts its visitors in another collection.

    runs: of the handler.
    visits: writes that were acknowledged.
    failures: names of the failures that observers received.
    """

    seen: Any
    other: Any
    plain: Any
    runs: int = 0
    visits: int = 0
    failures: list[str] = field(default_factory=list)
    left: list[Any] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def count(self) -> None:
        await self.seen.visits.update_one({"_id": "page"}, {"$inc": {"n": 1}}, upsert=True)
        self.visits += 1

    async def count_later(self) -> None:
        await self.go.wait()
        await self.count()

    def count_in_thread(self) -> None:
        self.plain.visits.update_one({"_id": "page"}, {"$inc": {"n": 1}}, upsert=True)
        self.visits += 1


How = Callable[[Writer, Any], Awaitable[Response]]


async def in_the_handler(writer: Writer, records: Any) -> Response:
    await writer.count()
    return JSONResponse(records)


async def in_a_background_task(writer: Writer, records: Any) -> Response:
    return JSONResponse(records, background=BackgroundTask(writer.count))


async def in_a_synchronous_background_task(writer: Writer, records: Any) -> Response:
    return JSONResponse(records, background=BackgroundTask(writer.count_in_thread))


async def in_a_task(writer: Writer, records: Any) -> Response:
    writer.left.append(asyncio.create_task(writer.count()))
    return JSONResponse(records)


async def in_a_thread_of_a_task(writer: Writer, records: Any) -> Response:
    writer.left.append(asyncio.create_task(asyncio.to_thread(writer.count_in_thread)))
    return JSONResponse(records)


async def by_a_client_without_capture(writer: Writer, records: Any) -> Response:
    def write() -> None:
        writer.other.visits.update_one({"_id": "page"}, {"$inc": {"n": 1}}, upsert=True)
        writer.visits += 1

    return JSONResponse(records, background=BackgroundTask(write))


WAYS = [
    in_the_handler, in_a_background_task, in_a_synchronous_background_task, in_a_task, in_a_thread_of_a_task,
    by_a_client_without_capture,
]  # fmt: skip


@asynccontextmanager
async def site(mongo_url: str, database: str, how: How, **settings: Any) -> AsyncIterator[tuple[Writer, Any, Quaestor]]:
    given = {"verification": True, "probation_ttl_ms": 600}
    quaestor = Quaestor(**(PATIENT | given | settings))
    client: AsyncMongoClient[Any] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    plain: pymongo.MongoClient[Any] = pymongo.MongoClient(mongo_url, event_listeners=[quaestor.capture])
    other: pymongo.MongoClient[Any] = pymongo.MongoClient(mongo_url)
    writer = Writer(client[database], other[database], plain[database])
    other[database].items.insert_one({"_id": 1})
    quaestor.on_failure(lambda seen: writer.failures.append(seen.name))

    async def page(request: Request) -> Response:
        writer.runs += 1
        records = await writer.seen.items.find({"_id": int(request.path_params["item"])}).to_list()
        return await how(writer, records)

    app = QuaestorMiddleware(Starlette(routes=[Route("/{item}", page)]), quaestor=quaestor)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop")
    try:
        async with http:
            yield writer, http, quaestor
    finally:
        await asyncio.gather(*writer.left)
        await quaestor.stop()
        await client.close()
        plain.close()
        other.drop_database(database)
        other.close()


@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.__name__)
async def test_each_request_writes_once_from_the_first_on(mongo_url: str, prefix: str, how: How) -> None:
    async with site(mongo_url, prefix, how) as (writer, http, quaestor):
        for number in range(1, 9):
            response = await http.get("/1")
            assert response.json() == [{"_id": 1}]
            assert "hit" not in response.headers["cache-status"]
            await asyncio.gather(*writer.left)
            assert (writer.runs, writer.visits) == (number, number)
        assert response.headers["cache-status"].endswith("fwd=bypass; detail=wrote")
        assert "no-store" in response.headers["cache-control"]
        assert writer.failures.count("handler.writes") == 1
        (standing,) = quaestor.read_path.probation.quarantines
        assert (standing.reason, standing.route.rpartition(".")[2]) == ("wrote", "page")
        await asyncio.sleep(0.7)  # as long as two verifications of an answer take on probation
        assert (writer.runs, writer.visits) == (8, 8)


async def test_concurrent_requests_before_the_late_write_each_run_the_handler(mongo_url: str, prefix: str) -> None:
    """The answer was sent, but the task has not written yet: no request is served the entry."""

    async def how(writer: Writer, records: Any) -> Response:
        return JSONResponse(records, background=BackgroundTask(writer.count_later))

    async with site(mongo_url, prefix, how) as (writer, http, _):
        requests = [asyncio.create_task(http.get("/1")) for _ in range(5)]
        await eventually(lambda: writer.runs == 5)
        writer.go.set()
        answers = await asyncio.gather(*requests)
        assert not [answer for answer in answers if "hit" in answer.headers["cache-status"]]
        assert writer.visits == 5


async def test_a_write_that_comes_late_ends_what_was_stored(mongo_url: str, prefix: str) -> None:
    """In a thread that was given the context by hand, which nobody can wait for."""
    pool, begun = ThreadPoolExecutor(1), threading.Event()

    async def how(writer: Writer, records: Any) -> Response:
        def work() -> None:
            begun.wait(20)
            writer.count_in_thread()

        if records:
            pool.submit(contextvars.copy_context().run, work)
        return JSONResponse(records)

    async with site(mongo_url, prefix, how, verification=False) as (writer, http, _):

        async def hit() -> bool:
            return "; hit" in (await http.get("/2")).headers["cache-status"]

        await eventually(hit)
        assert "stored" in (await http.get("/1")).headers["cache-status"]
        assert "; hit" in (await http.get("/1")).headers["cache-status"]
        begun.set()
        await eventually(lambda: writer.visits == 1)

        async def passed_by() -> bool:
            return "detail=wrote" in (await http.get("/1")).headers["cache-status"]

        await eventually(passed_by)
    pool.shutdown()


async def test_work_that_only_reads_delays_the_entry_and_nothing_else(mongo_url: str, prefix: str) -> None:
    async def how(writer: Writer, records: Any) -> Response:
        async def read() -> None:
            await writer.go.wait()
            await writer.seen.items.find_one({"_id": 7})

        if records:
            writer.left.append(asyncio.create_task(read()))
        return JSONResponse(records)

    async with site(mongo_url, prefix, how, verification=False) as (writer, http, quaestor):

        async def hit(path: str = "/2") -> bool:
            return "; hit" in (await http.get(path)).headers["cache-status"]

        await eventually(hit)
        assert "stored" in (await http.get("/1")).headers["cache-status"]
        assert not await hit("/1")
        writer.go.set()
        await eventually(lambda: hit("/1"))
        assert not quaestor.read_path.probation.quarantines


async def test_the_quarantine_of_a_handler_that_wrote_ends(mongo_url: str, prefix: str) -> None:
    """One that has made its own settings, say, is cached afterwards."""

    async def how(writer: Writer, records: Any) -> Response:
        if writer.runs == 1:
            await writer.count()
        return JSONResponse(records)

    async with site(mongo_url, prefix, how, quarantine_ms=300) as (_, http, _):
        assert "hit" not in (await http.get("/1")).headers["cache-status"]

        async def hit() -> bool:
            return "; hit" in (await http.get("/1")).headers["cache-status"]

        await eventually(hit)
