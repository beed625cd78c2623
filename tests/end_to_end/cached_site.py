"""A real application on a real mongod, served by a real server, behind a link that can be held and a real cache."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pymongo
import uvicorn
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cdn_adapters import Delivery
from middleware import QuaestorMiddleware
from middleware.interface import Message, Receive, Scope, Send
from quaestor import Quaestor
from quaestor.cluster_time import version_of
from quaestor.demo.servers import HOST
from quaestor.model import Version
from quaestor.observability.hooks import InvalidationDone
from tests.support import PATIENCE_S, PATIENT, eventually

LIVES_S = 600
SEND_BUFFER = 16 * 1024
"""Of the application's sockets, so that an answer under way is seen to be."""


class CachedSite:
    """One app whose pages `/n/NAME` show a number of the database.

    requests: that have reached the application.
    left: answers whose header has left it.
    purged: pages that were invalidated and purged.
    read: called by the handler after it has read.
    padding: bytes that an answer has besides.
    """

    def __init__(
        self, mongo_url: str, database: str, *, delivery: Delivery, cache_url: str, protected: bool, **settings: Any
    ) -> None:
        self.quaestor = Quaestor(**PATIENT, early_refresh=0.0, ttl_min_ms=LIVES_S * 1_000, **settings)
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.numbers = self.client[database].numbers
        self.delivery = delivery
        self.cache_url = cache_url
        self.requests = self.left = self.purged = 0
        self.quaestor.on_invalidated(self._note)
        self.read: Callable[[], Awaitable[None]] = nothing
        self.padding = 0
        self._other = pymongo.MongoClient[dict[str, Any]](mongo_url)
        self._web = httpx.AsyncClient(base_url=cache_url, timeout=2 * PATIENCE_S, trust_env=False)
        self._app = Starlette(routes=[Route("/n/{name}", self._page)])
        self._bare = not protected
        if protected:
            self._app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor, cdn=[delivery])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests += scope["type"] == "http"

        async def noted(message: Message) -> None:
            await send(message)
            self.left += message["type"] == "http.response.start"

        await self._app(scope, receive, noted)

    async def _page(self, request: Request) -> JSONResponse:
        found = await self.numbers.find_one({"_id": request.path_params["name"]})
        await self.read()
        headers = {}
        if self._bare:
            told = self.delivery.lifetime_headers(lives_s=LIVES_S, until_s=int(time.time()) + LIVES_S)
            headers = {name.decode(): value.decode() for name, value in told}
            headers["cdn-cache-control"] = f"max-age={LIVES_S}"
        return JSONResponse({"n": (found or {}).get("n"), "padding": "x" * self.padding}, headers=headers)

    def _note(self, done: InvalidationDone) -> None:
        self.purged += done.purged_at_ms is not None

    async def get(self, name: str) -> int:
        """What the page shows through the cache."""
        response = await self._web.get(f"/n/{name}")
        assert response.status_code == 200, response.text
        return int(response.json()["n"])

    async def kept(self, name: str) -> bool:
        """Whether the cache answers by itself."""
        before = self.requests
        await self.get(name)
        return self.requests == before

    async def write(self, name: str, n: int) -> Version:
        """Write by somebody else than the application; the write's version."""

        def work() -> Version:
            with self._other.start_session() as session:
                numbers = self._other[self.numbers.database.name].numbers
                numbers.update_one({"_id": name}, {"$set": {"n": n}}, upsert=True, session=session)
                assert session.operation_time is not None
                return version_of(session.operation_time)

        return await asyncio.to_thread(work)

    async def purge(self, name: str) -> None:
        """Purge a page, as a program would that has no outbox."""
        await self.delivery.purge(tags=[], urls=[f"{self.cache_url}/n/{name}"])

    def count(self, name: str) -> float:
        """The value of one counter of the application."""
        return self.quaestor.telemetry.families.registry.get_sample_value(f"quaestor_{name}_total") or 0.0

    async def open_purges(self) -> int:
        """How many purges wait or are under way, those that are repeated later among them."""
        outbox = self.quaestor.parts.storage.outbox
        sizes = [await outbox.size(queue) for queue in await outbox.queues()]
        return sum(size.waiting + size.taken for size in sizes)

    async def settled(self) -> bool:
        """Whether everything was purged, and that was repeated."""
        return await self.open_purges() == 0

    async def close(self) -> None:
        await self._web.aclose()
        if self._bare:
            await self.delivery.aclose()
        await self.client.close()
        await asyncio.to_thread(self._other.close)


@asynccontextmanager
async def cached_site(
    mongo_url: str,
    database: str,
    *,
    port: int,
    delivery: Delivery,
    cache_url: str,
    protected: bool = True,
    **settings: Any,
) -> AsyncIterator[CachedSite]:
    """Runs on this port until the block ends.

    protected: False for an application without the middleware, that lets caches keep everything.
    """
    site = CachedSite(mongo_url, database, delivery=delivery, cache_url=cache_url, protected=protected, **settings)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listener.bind((HOST, port))
        server = uvicorn.Server(uvicorn.Config(site, log_level="critical", ws="none"))  # type: ignore[arg-type]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await eventually(lambda: server.started or serving.done())
            if protected:
                await eventually(lambda: site.quaestor.read_path.serving(site.quaestor.read_path.clock()))
            yield site
        finally:
            server.should_exit = True
            await serving
            await site.close()


async def nothing() -> None: ...
