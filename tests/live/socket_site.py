"""An application with live queries, served by uvicorn, and a client of its socket that tests read message by message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pymongo
from fastapi import FastAPI
from pymongo import AsyncMongoClient
from starlette.middleware import Middleware
from websockets.asyncio.client import ClientConnection, connect

from quaestor import Quaestor, QuaestorMiddleware
from quaestor.live.websocket.answers import ANSWERS
from quaestor.live.websocket.endpoint import LiveQueries
from quaestor.rest.access import Access
from quaestor.testing.serving import serving
from tests.support import PATIENT

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """A running application.

    url: of its socket.
    http: of the application.
    database: the records, for the test's own writes.
    loops: the application's event loop.
    app: the application.
    """

    url: str
    http: str
    quaestor: Quaestor
    live: LiveQueries
    database: pymongo.database.Database[Json]
    loops: list[asyncio.AbstractEventLoop]
    app: FastAPI

    def drop_sockets(self) -> None:
        """Close all sockets, as a server does that restarts."""
        endpoint = self.live._endpoint
        self.loops[0].call_soon_threadsafe(lambda: [socket.close(1012, "restart") for socket in endpoint._sockets])

    def recheck(self) -> None:
        """Run LiveQueries.recheck() on the application's event loop."""
        asyncio.run_coroutine_threadsafe(self.live.recheck(), self.loops[0]).result(10)


@contextmanager
def live_site(
    mongo_url: str, database: str, *, settings: Json | None = None, outer: Sequence[Middleware] = (), **live: Any
) -> Iterator[Site]:
    """Serve an application with the middleware and an endpoint of live queries.

    outer: middlewares around the cache.
    """
    quaestor = Quaestor(mongo_url=mongo_url, **PATIENT | (settings or {}))
    client: AsyncMongoClient[Json] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    loops: list[asyncio.AbstractEventLoop] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loops.append(asyncio.get_running_loop())
        yield
        await client.close()

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    for middleware in outer:
        app.add_middleware(middleware.cls, *middleware.args, **middleware.kwargs)
    endpoint = LiveQueries(client[database], quaestor=quaestor, **{"access": Access.public_read()} | live)
    app.include_router(endpoint)
    with pymongo.MongoClient[Json](mongo_url) as writer:
        try:
            with serving(app) as url:
                yield Site(
                    url.replace("http", "ws", 1) + "/live", url, quaestor, endpoint, writer[database], loops, app
                )
        finally:
            writer.drop_database(database)


class Client:
    """Client of one socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, **message: Any) -> None:
        """Send a message."""
        await self.connection.send(json.dumps(message))

    async def hear(self) -> Json:
        """The next message."""
        message: Json = json.loads(await self.connection.recv())
        ANSWERS.validate_python(message)
        del message["date"]
        return message

    async def subscribe(self, id: str = "a", bucket: str = "items", **fields: Any) -> Json:  # noqa: A002
        """Subscribe; the first message of the subscription."""
        fields = {name: json.dumps(value) if name in ("query", "sort") else value for name, value in fields.items()}
        await self.say(type="subscribe", id=id, bucket=bucket, **fields)
        return await self.hear()

    async def match(self) -> tuple[Any, ...]:
        """Match type, operation, index and `_id` of the next message, which is a match."""
        message = await self.hear()
        assert message["type"] == "match", message
        return message["matchType"], message["operation"], message.get("index"), message["data"]["_id"]


@asynccontextmanager
async def client_of(site: Site, **options: Any) -> AsyncIterator[Client]:
    """A client of the site's socket."""
    async with connect(site.url, **options) as connection:
        yield Client(connection)
