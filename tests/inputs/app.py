"""A cached app whose pages a test writes itself, on a collection of a real mongod; every page also bare, without a cache."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pymongo
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

Collection = pymongo.collection.Collection[dict[str, Any]]
Asynchronous = pymongo.asynchronous.collection.AsyncCollection[dict[str, Any]]
Page = Callable[[Asynchronous, Request], Awaitable[Any]]


class App:
    """One app in embedded mode.

    items: the collection as another program would write to it.
    """

    def __init__(self, mongo_url: str, items: Collection, pages: dict[str, Page], **settings: Any) -> None:
        self.items = items
        self.quaestor = Quaestor(debug_header=True, **PATIENT | settings)
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        records = self.client[items.database.name][items.name]

        def route(path: str, page: Page) -> Route:
            async def endpoint(request: Request) -> Response:
                return JSONResponse(await page(records, request))

            return Route(path, endpoint)

        self.bare = Starlette(routes=[route(path, page) for path, page in pages.items()])
        transport = httpx.ASGITransport(QuaestorMiddleware(self.bare, quaestor=self.quaestor))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://shop")
        self.http_bare = httpx.AsyncClient(transport=httpx.ASGITransport(self.bare), base_url="http://shop")

    async def get(self, path: str) -> tuple[Any, str]:
        """The answer, and hit, stored, or why it was not."""
        response = await self.http.get(path)
        assert response.status_code == 200, response.text
        status = response.headers.get("cache-status", "")
        how = "hit" if "; hit" in status else "stored" if "stored" in status else "bypass"
        return response.json(), how if how != "bypass" else response.headers.get("x-quaestor-explain", status)

    async def truth(self, path: str) -> Any:
        """The answer as it would be without a cache."""
        return (await self.http_bare.get(path)).json()

    async def warm(self, path: str) -> Any:
        """Ask until it is a hit; the answer."""
        answer: Any = None

        async def hit() -> bool:
            nonlocal answer
            answer, how = await self.get(path)
            return how == "hit"

        await eventually(hit)
        return answer

    async def until_true(self, path: str) -> None:
        """Wait until the cache answers what the bare app does."""

        async def same() -> bool:
            return bool((await self.get(path))[0] == await self.truth(path))

        await eventually(same)


@asynccontextmanager
async def app(mongo_url: str, database: str, pages: dict[str, Page], **settings: Any) -> AsyncIterator[App]:
    """The app while the block runs, on an empty collection."""
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        made = App(mongo_url, other[database].items, pages, **settings)
        try:
            yield made
        finally:
            await made.http.aclose()
            await made.http_bare.aclose()
            await made.quaestor.stop()
            await made.client.close()
            other.drop_database(database)
