"""A real application on a real mongod, served by a real server, behind a link that can be held and a real cache."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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

from benchmarks.setups.real_caches import LIMITS
from quaestor import Quaestor
from quaestor.cdn_adapters import Delivered, Delivery, Place, Target
from quaestor.cdn_adapters.answers import Answer
from quaestor.cdn_adapters.place import Connection
from quaestor.cluster_time import version_of
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import Message, Receive, Scope, Send
from quaestor.model import Version
from quaestor.testing.servers import HOST
from tests.support import PATIENCE_S, PATIENT, eventually

ENDED_WITHIN_S = 60.0
LIVES_S = 600
NEVER_MS = 3_600_000
"""A purge that is to be repeated after that is not, as far as a test sees."""
SEND_BUFFER = 16 * 1024
"""Of the application's sockets, so that an answer under way is seen to be."""


class CountedPlace:
    """Implements Place for another one.

    asked: the targets of each purge that was asked for.
    acknowledged: purges that the place has acknowledged, by what was purged.
    """

    def __init__(self, place: Place) -> None:
        self.name, self.address, self.capabilities = place.name, place.address, place.capabilities
        self.asked: list[list[Target]] = []
        self.acknowledged: Counter[str] = Counter()
        self._place = place

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        return self._place.response_headers(tags)

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        self.asked.append(self._place.targets(tags=tags, urls=urls))
        return self.asked[-1]

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        async with self._place.connect() as connection:
            yield _Counted(connection, self.acknowledged)


class _Counted:
    """Its connection."""

    def __init__(self, connection: Connection, acknowledged: Counter[str]) -> None:
        self._connection = connection
        self._acknowledged = acknowledged
        self.completed = connection.completed

    async def send(self, targets: Sequence[Target]) -> Answer:
        answer = await self._connection.send(targets)
        if isinstance(answer, Delivered):
            self._acknowledged.update(target.value for target in targets)
        return answer


class CachedSite:
    """One app whose pages `/n/NAME` show a number of the database.

    requests: that have reached the application.
    left: answers whose header has left it, by path; whether the cache may keep the last one.
    read: called by the handler after it has read.
    padding: bytes that an answer has besides.
    """

    def __init__(
        self, mongo_url: str, database: str, *, place: Place, cache_url: str, protected: bool, **settings: Any
    ) -> None:
        fixed = PATIENT | {"early_refresh": 0.0, "doorkeeper_share": 0.0, "ttl_min_ms": LIVES_S * 1_000}
        self.quaestor = Quaestor(**fixed, **settings)
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.numbers = self.client[database].numbers
        self._place = CountedPlace(place)
        self.delivery = Delivery(self._place, limits=LIMITS)
        self.cache_url = cache_url
        self.requests = 0
        self.left: dict[str, bool] = {}
        self.read: Callable[[], Awaitable[None]] = nothing
        self.padding = 0
        self._other = pymongo.MongoClient[dict[str, Any]](mongo_url)
        self._web = httpx.AsyncClient(base_url=cache_url, timeout=2 * PATIENCE_S, trust_env=False)
        self._app = Starlette(routes=[Route("/n/{name}", self._page)])
        self._bare = not protected
        if protected:
            self._app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor, cdn=[self.delivery])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.requests += scope["type"] == "http"

        async def noted(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                value = dict(message["headers"]).get(b"cdn-cache-control", b"max-age=0")
                self.left[scope["path"]] = not value.startswith(b"max-age=0")

        await self._app(scope, receive, noted)

    async def _page(self, request: Request) -> JSONResponse:
        record = await self.numbers.find_one({"_id": request.path_params["name"]})
        await self.read()
        headers = {}
        if self._bare:
            fields = self.delivery.lifetime_headers(lives_s=LIVES_S, until_s=int(time.time()) + LIVES_S)
            headers = {name.decode(): value.decode() for name, value in fields}
            headers["cdn-cache-control"] = f"max-age={LIVES_S}"
        return JSONResponse({"n": (record or {}).get("n"), "padding": "x" * self.padding}, headers=headers)

    def let(self, name: str) -> bool | None:
        """Whether the cache may keep the last answer for this page; None: none has left the application."""
        return self.left.get(f"/n/{name}")

    def purges(self, name: str) -> int:
        """How often the cache has acknowledged a purge of this page."""
        return self._place.acknowledged[f"{self.cache_url}/n/{name}"]

    async def get(self, name: str) -> int:
        """Return the number that the page shows through the cache."""
        response = await self._web.get(f"/n/{name}")
        assert response.status_code == 200, response.text
        return int(response.json()["n"])

    async def kept(self, name: str) -> bool:
        """Whether the cache answers by itself."""
        before = self.requests
        await self.get(name)
        return self.requests == before

    async def write(self, name: str, n: int) -> Version:
        """Write through a client outside the application; return the write's version."""

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

    def started_over(self, times: int) -> bool:
        """Whether everything that an earlier process may have handed out was purged, so often, as far as the cache can."""
        requested, acknowledged = self._place.asked, self._place.acknowledged
        return bool(requested) and all(acknowledged[target.value] >= times for target in requested[0])

    async def open_purges(self) -> int:
        """Return how many purges wait or are under way, including the ones to be repeated later."""
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
    place: Place,
    cache_url: str,
    protected: bool = True,
    **settings: Any,
) -> AsyncIterator[CachedSite]:
    """Runs on this port until the block ends.

    protected: False for an application without the middleware, that lets caches keep everything.

    Begins when what the process has to do at first is over: until then it lets caches keep nothing.
    """
    site = CachedSite(mongo_url, database, place=place, cache_url=cache_url, protected=protected, **settings)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listener.bind((HOST, port))
        config = uvicorn.Config(site, log_level="critical", ws="none", timeout_graceful_shutdown=5)  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await eventually(lambda: server.started or serving.done())
            if protected:
                await eventually(lambda: site.quaestor.read_path.serving(site.quaestor.read_path.clock()))
                repeated = settings.get("repurge_after_ms", 0) < NEVER_MS
                await eventually(lambda: site.started_over(2 if repeated else 1))
            yield site
        finally:
            server.should_exit = True
            try:
                await asyncio.wait_for(serving, ENDED_WITHIN_S)
            finally:
                await asyncio.wait_for(site.close(), ENDED_WITHIN_S)


async def nothing() -> None: ...
