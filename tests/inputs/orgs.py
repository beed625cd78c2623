"""Apps of several frameworks that choose records by a request field, each bare and behind the middleware, on a real mongod."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import litestar
import pymongo
import quart
from fastapi import Depends, FastAPI
from fastapi import Request as FastAPIRequest
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App, Receive, Scope, Send
from tests.support import PATIENT, eventually

Choose = Callable[[str], Any]
Make = Callable[[Choose, str], App]
"""An app whose page / answers with what `choose` finds for the value of the field that is named; empty if it is absent."""


def raw_app(choose: Choose, name: str) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        value = next((value.decode() for field, value in scope["headers"] if field == name.lower().encode()), "")
        await JSONResponse(await choose(value))(scope, receive, send)

    return app


def starlette_app(choose: Choose, name: str) -> App:
    async def page(request: Request) -> Response:
        return JSONResponse(await choose(request.headers.get(name, "")))

    return Starlette(routes=[Route("/", page)])


def copying_app(choose: Choose, name: str) -> App:
    async def page(request: Request) -> Response:
        return JSONResponse(await choose(dict(request.headers).get(name.lower(), "")))

    return Starlette(routes=[Route("/", page)])


def fastapi_app(choose: Choose, name: str) -> App:
    app = FastAPI()

    def org(request: FastAPIRequest) -> str:
        return request.headers[name] if name in request.headers else ""  # noqa: SIM401

    @app.get("/")
    async def page(org: str = Depends(org)) -> Any:
        return await choose(org)

    return app


def litestar_app(choose: Choose, name: str) -> App:
    @litestar.get("/")
    async def page(request: litestar.Request[Any, Any, Any]) -> list[str]:
        chosen: list[str] = await choose(request.headers.get(name, ""))
        return chosen

    app: App = litestar.Litestar([page], openapi_config=None, logging_config=None)  # type: ignore[assignment]
    return app


def quart_app(choose: Choose, name: str) -> App:
    app = quart.Quart(__name__)

    @app.get("/")
    async def page() -> Any:
        return await choose(quart.request.headers.get(name, ""))

    return app


APPS: list[Make] = [raw_app, starlette_app, copying_app, fastapi_app, litestar_app, quart_app]


class Orgs:
    """One app twice, bare and cached, over the records of three organisations.

    runs: of handlers behind the cache.
    """

    def __init__(self, make: Make, name: str, mongo_url: str, database: str, **settings: Any) -> None:
        self.name = name
        self.runs = 0
        self.quaestor = Quaestor(**PATIENT | settings)
        self._seen: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self._unseen: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url)
        self._database = database
        self.cached = self._client(QuaestorMiddleware(make(self._choose(self._seen), name), quaestor=self.quaestor))
        self.bare = self._client(make(self._choose(self._unseen), name))

    def _choose(self, client: AsyncMongoClient[dict[str, Any]]) -> Choose:
        async def choose(org: str) -> list[str]:
            self.runs += client is self._seen
            cursor = client[self._database].notes.find({"org": org}).sort("_id", 1)
            return [note["text"] for note in await cursor.to_list()]

        return choose

    def _client(self, app: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")

    async def ask(self, value: str | None, **more: str) -> httpx.Response:
        """Ask the cached app; its answer is the bare one's."""
        fields = {**({} if value is None else {self.name: value}), **more}
        cached, bare = await self.cached.get("/", headers=fields), await self.bare.get("/", headers=fields)
        assert cached.status_code == bare.status_code == 200, cached.text
        assert cached.json() == bare.json() == ([] if value is None else [f"of {value}"])
        return cached

    async def warm(self, value: str | None, **more: str) -> httpx.Response:
        """Ask until it is a hit."""
        answers: list[httpx.Response] = []

        async def hit() -> bool:
            answers.append(await self.ask(value, **more))
            return is_hit(answers[-1])

        await eventually(hit)
        return answers[-1]

    async def close(self) -> None:
        await self.cached.aclose()
        await self.bare.aclose()
        await self.quaestor.stop()
        await self._seen.close()
        await self._unseen.close()


def is_hit(response: httpx.Response) -> bool:
    return "; hit" in response.headers["cache-status"]


def varies_by(response: httpx.Response) -> set[str]:
    return {name.strip() for name in response.headers.get("vary", "").lower().split(",")} - {""}


@asynccontextmanager
async def orgs(make: Make, name: str, mongo_url: str, database: str, **settings: Any) -> AsyncIterator[Orgs]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        other[database].notes.insert_many([{"_id": org, "org": org, "text": f"of {org}"} for org in ("1", "2", "3")])
        world = Orgs(make, name, mongo_url, database, **settings)
        try:
            yield world
        finally:
            await world.close()
            other.drop_database(database)
