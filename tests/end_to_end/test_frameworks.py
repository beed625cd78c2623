"""One ASGI middleware in each framework: hits, exact invalidation, and otherwise the behaviour of the bare app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import litestar
import pymongo
import pytest
import quart
from fastapi import FastAPI
from litestar.params import FromPath
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App, Message
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

Items = Any
Answer = list[dict[str, Any]]


def fastapi_app(items: Items) -> App:
    app = FastAPI()

    @app.get("/items/{group}")
    async def read(group: int) -> Answer:
        return await items.find({"group": group}).sort("_id", 1).to_list()

    @app.post("/items/{key}")
    async def write(key: int, request: Request) -> dict[str, int]:
        await items.update_one({"_id": key}, {"$set": {"text": (await request.body()).decode()}})
        return {"key": key}

    @app.get("/cookies")
    async def cookies(response: Response) -> Answer:
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return await items.find({}).to_list()

    return app


def starlette_app(items: Items) -> App:
    async def read(request: Request) -> Response:
        cursor = items.find({"group": int(request.path_params["group"])}).sort("_id", 1)
        return JSONResponse(await cursor.to_list())

    async def write(request: Request) -> Response:
        key = int(request.path_params["key"])
        await items.update_one({"_id": key}, {"$set": {"text": (await request.body()).decode()}})
        return JSONResponse({"key": key})

    async def cookies(request: Request) -> Response:
        response = JSONResponse(await items.find({}).to_list())
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    routes = [
        Route("/items/{group}", read),
        Route("/items/{key}", write, methods=["POST"]),
        Route("/cookies", cookies),
    ]
    return Starlette(routes=routes)


def litestar_app(items: Items) -> App:
    @litestar.get("/items/{group:int}")
    async def read(group: FromPath[int]) -> Answer:
        records: Answer = await items.find({"group": group}).sort("_id", 1).to_list()
        return records

    @litestar.post("/items/{key:int}", status_code=200)
    async def write(key: FromPath[int], request: litestar.Request[Any, Any, Any]) -> dict[str, int]:
        await items.update_one({"_id": key}, {"$set": {"text": (await request.body()).decode()}})
        return {"key": key}

    @litestar.get("/cookies")
    async def cookies() -> litestar.Response[Answer]:
        records: Answer = await items.find({}).to_list()
        response = litestar.Response(records)
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    app: App = litestar.Litestar([read, write, cookies], openapi_config=None, logging_config=None)  # type: ignore[assignment]
    return app


def quart_app(items: Items) -> App:
    app = quart.Quart(__name__)

    @app.get("/items/<int:group>")
    async def read(group: int) -> Answer:
        records: Answer = await items.find({"group": group}).sort("_id", 1).to_list()
        return records

    @app.post("/items/<int:key>")
    async def write(key: int) -> dict[str, int]:
        await items.update_one({"_id": key}, {"$set": {"text": (await quart.request.get_data()).decode()}})
        return {"key": key}

    @app.get("/cookies")
    async def cookies() -> quart.Response:
        records = await items.find({}).to_list()
        response = quart.jsonify(records)
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    return app


APPS: list[Callable[[Items], App]] = [fastapi_app, starlette_app, litestar_app, quart_app]


@asynccontextmanager
async def served(
    make: Callable[[Items], App], mongo_url: str, database: str
) -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
    """A client of the app inside the cache, and the collection as another program sees it."""
    quaestor = Quaestor(**PATIENT)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app = QuaestorMiddleware(make(client[database].items), quaestor=quaestor)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        items = other[database].items
        items.insert_many([{"_id": n, "group": n % 2, "text": "old"} for n in range(6)])
        try:
            transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://site") as http:
                yield http, items
        finally:
            await quaestor.stop()
            await client.close()
            other.drop_database(database)


def is_hit(response: httpx.Response) -> bool:
    return "; hit" in response.headers["cache-status"]


async def warm(http: httpx.AsyncClient, path: str) -> None:
    async def hit() -> bool:
        response = await http.get(path)
        assert response.status_code == 200, response.text
        return is_hit(response)

    await eventually(hit)


@pytest.mark.parametrize("make", APPS)
async def test_a_write_changes_exactly_the_answers_that_show_it(
    make: Callable[[Items], App], mongo_url: str, prefix: str
) -> None:
    async with served(make, mongo_url, prefix) as (http, items):
        await warm(http, "/items/0")
        await warm(http, "/items/1")
        items.update_one({"_id": 2}, {"$set": {"text": "by somebody else"}})

        async def changed() -> bool:
            return (await http.get("/items/0")).json()[1]["text"] == "by somebody else"

        await eventually(changed)
        assert is_hit(await http.get("/items/1"))

        assert (await http.post("/items/3", content=b"by the app")).json() == {"key": 3}

        async def changed_again() -> bool:
            return (await http.get("/items/1")).json()[1]["text"] == "by the app"

        await eventually(changed_again)


@pytest.mark.parametrize("make", APPS)
async def test_fields_that_come_twice_stay_two_and_what_sets_a_cookie_is_not_stored(
    make: Callable[[Items], App], mongo_url: str, prefix: str
) -> None:
    async with served(make, mongo_url, prefix) as (http, _):
        await warm(http, "/items/0")
        for _ in range(2):
            response = await http.get("/cookies")
            assert [cookie.split(";")[0] for cookie in response.headers.get_list("set-cookie")] == ["a=1", "b=2"]
            assert not is_hit(response)


@pytest.mark.parametrize("make", APPS)
async def test_a_path_without_a_handler_and_a_method_that_is_not_allowed(
    make: Callable[[Items], App], mongo_url: str, prefix: str
) -> None:
    async with served(make, mongo_url, prefix) as (http, _):
        assert (await http.get("/nowhere")).status_code == 404
        assert (await http.delete("/items/0")).status_code == 405


async def test_background_tasks_run_after_the_answer_and_websockets_pass(mongo_url: str, prefix: str) -> None:
    messages: list[str] = []

    async def read(request: Request) -> Response:
        return JSONResponse({}, background=BackgroundTask(messages.append, "ran"))

    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())
        await websocket.close()

    app = Starlette(routes=[Route("/", read), WebSocketRoute("/echo", echo)])
    async with served(lambda _: app, mongo_url, prefix) as (http, _):
        assert (await http.get("/")).json() == {}
        assert messages == ["ran"]

    quaestor = Quaestor()
    sent: list[Message] = []
    incoming: list[Message] = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "hello"}]

    async def receive() -> Message:
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/echo", "headers": [], "query_string": b"", "subprotocols": []}
    await QuaestorMiddleware(app, quaestor=quaestor)(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.send", "websocket.close"]
    assert sent[1]["text"] == "hello"


async def test_the_apps_own_lifespan_runs_inside_ours(mongo_url: str) -> None:
    messages: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        messages.append("up")
        yield
        messages.append("down")

    app = QuaestorMiddleware(Starlette(lifespan=lifespan), quaestor=Quaestor(mongo_url=mongo_url))
    to_app, from_app = anyio.create_memory_object_stream[Message](4), anyio.create_memory_object_stream[Message](4)

    async with anyio.create_task_group() as group:
        group.start_soon(app, {"type": "lifespan", "state": {}}, to_app[1].receive, from_app[0].send)
        await to_app[0].send({"type": "lifespan.startup"})
        assert (await from_app[1].receive())["type"] == "lifespan.startup.complete"
        assert messages == ["up"]
        await to_app[0].send({"type": "lifespan.shutdown"})
        assert (await from_app[1].receive())["type"] == "lifespan.shutdown.complete"
    assert messages == ["up", "down"]
    for stream in (*to_app, *from_app):
        stream.close()
