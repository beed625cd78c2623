"""The Python client against an application as it is run: uvicorn, middleware, REST front, MongoDB; embedded, or with a grid."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI, Header
from pymongo import AsyncMongoClient

from quaestor import Quaestor, QuaestorSyncTransport, QuaestorTransport, resolve
from quaestor.caching import cached, header, per_user
from quaestor.middleware import QuaestorMiddleware
from quaestor.rest import Access, QuaestorRouter
from tests.end_to_end.test_distributed import HEARTBEAT_MS, grid
from tests.sketch_clients.http_server import serving
from tests.support import PATIENCE_S, PATIENT, eventually

pytestmark = pytest.mark.anyio
Database = pymongo.database.Database[dict[str, Any]]
LIST = '/db/items?filter={"group":"a"}&sort={"rank":1}'


class Shop:
    """An application of a shop; asked: how often its handler has run."""

    def __init__(self, mongo_url: str, database: str, **settings: Any) -> None:
        # The answer to a write waits for its effects, on a machine that stands still too.
        quaestor = Quaestor(ttl_min_ms=600_000, read_your_writes_ms=int(1_000 * PATIENCE_S), **PATIENT | settings)
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[quaestor.capture], serverSelectionTimeoutMS=int(1_000 * PATIENCE_S)
        )

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            await quaestor.stop()
            await client.close()

        self.app = FastAPI(lifespan=lifespan)
        self.app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
        self.app.include_router(QuaestorRouter(client[database], access=Access.public(), quaestor=quaestor))
        self.asked = 0

        @self.app.get("/pages/{key}")
        async def page(key: int) -> dict[str, Any] | None:
            self.asked += 1
            return await client[database].items.find_one({"_id": key})

        @self.app.get("/mine")
        @cached(scope=per_user(by=header("authorization")))
        async def mine(authorization: str = Header("")) -> dict[str, Any]:
            record = await client[database].items.find_one({"_id": 1})
            return {"who": authorization, "item": record}


@pytest.fixture(params=["embedded", "shared"])
def shop(
    request: pytest.FixtureRequest, mongo_url: str, redis_url: str, prefix: str
) -> Iterator[tuple[str, Shop, Database]]:
    """Its URL, the application, and the database as another program sees it."""
    with ExitStack() as stack:
        other = stack.enter_context(pymongo.MongoClient[dict[str, Any]](mongo_url))[prefix]
        other.items.insert_many([{"_id": key, "group": "ab"[key % 2], "rank": key, "n": 0} for key in range(20)])
        settings: dict[str, Any] = {}
        if request.param == "shared":
            stack.enter_context(grid(mongo_url, redis_url, prefix))
            settings = {"redis_url": redis_url, "deployment": prefix, "heartbeat_ms": HEARTBEAT_MS}
        made = Shop(mongo_url, prefix, **settings)
        yield stack.enter_context(serving(made)), made, other


def source(response: httpx.Response) -> object:
    return response.extensions.get("quaestor")


async def kept(client: httpx.AsyncClient, path: str, **headers: str) -> httpx.Response:
    """Ask until it comes from memory."""
    response: httpx.Response | None = None

    async def from_memory() -> bool:
        nonlocal response
        response = (await client.get(path, headers=headers)).raise_for_status()
        return source(response) == "memory"

    await eventually(from_memory)
    assert response is not None
    return response


async def test_a_write_of_another_program_is_seen_with_the_next_sketch(shop: tuple[str, Shop, Database]) -> None:
    """Until the next sketch, copies of pages and lists cost the application no request."""
    url, made, other = shop
    transport = QuaestorTransport(url)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        assert (await kept(client, "/pages/4")).json()["n"] == 0
        assert len((await kept(client, LIST)).json()) == 10
        asked_before = made.asked
        assert source(await client.get("/pages/4")) == "memory"
        assert made.asked == asked_before
        other.items.update_one({"_id": 4}, {"$set": {"n": 1}})

        async def seen() -> bool:
            await transport.refresh()
            page, listed = (await client.get("/pages/4")).json(), (await client.get(LIST)).json()
            return bool(page["n"] == 1 and listed[2]["n"] == 1)

        await eventually(seen)


async def test_own_writes_are_in_the_very_next_answers(shop: tuple[str, Shop, Database]) -> None:
    """Of the record, and of every query that shows it."""
    url, _, _ = shop
    async with httpx.AsyncClient(transport=QuaestorTransport(url), base_url=url) as client:
        await kept(client, "/db/items/6")
        await kept(client, LIST)
        for n in range(1, 4):
            (await client.put("/db/items/6", json={"group": "a", "rank": 6, "n": n})).raise_for_status()
            assert (await client.get("/db/items/6")).json()["n"] == n
            assert (await client.get(LIST)).json()[3]["n"] == n


async def test_the_members_of_an_id_list(shop: tuple[str, Shop, Database]) -> None:
    """The second time from memory, each by itself."""
    url, _, _ = shop
    transport = QuaestorTransport(url)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:

        async def members() -> list[httpx.Response]:
            listed = (await client.get(f"{LIST}&representation=ids")).raise_for_status()
            return await resolve(client, listed.json(), lambda identifier: f"/db/items/{identifier}")

        async def all_kept() -> bool:
            return {source(member) for member in await members()} == {"memory"}

        await eventually(all_kept)
        assert [member.json()["_id"] for member in await members()] == list(range(0, 20, 2))


async def test_nobody_is_shown_what_was_made_for_another(shop: tuple[str, Shop, Database]) -> None:
    url, _, _ = shop
    transport = QuaestorTransport(url)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        ann = await kept(client, "/mine", authorization="ann")
        assert ann.json()["who"] == "ann"
        assert (await client.get("/mine", headers={"authorization": "bob"})).json()["who"] == "bob"
        assert (await client.get("/mine")).json()["who"] == ""
        transport.forget_private()
        assert source(await client.get("/mine", headers={"authorization": "ann"})) != "memory"


def test_threads_that_read_what_one_of_them_writes(shop: tuple[str, Shop, Database]) -> None:
    """One synchronous client for all: after each write all of them see it."""
    url, _, _ = shop
    written, wrong = [0], []

    def read(client: httpx.Client, stop: threading.Event) -> None:
        while not stop.is_set():
            least = written[0]
            n = client.get("/db/items/8").json()["n"]
            if n < least:
                wrong.append((n, least))

    with httpx.Client(transport=QuaestorSyncTransport(url), base_url=url, timeout=60) as client:
        stop = threading.Event()
        readers = [threading.Thread(target=read, args=(client, stop), daemon=True) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for n in range(1, 8):
                client.put("/db/items/8", json={"group": "a", "rank": 8, "n": n}).raise_for_status()
                written[0] = n
        finally:
            stop.set()
            for reader in readers:
                reader.join(60)
    assert wrong == []
