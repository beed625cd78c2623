"""One real Starlette app behind the middleware. The test drives the grid: it decides when a registration dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaestor.middleware import QuaestorMiddleware
from tests.hand_driven import HandEngine, reads

Handler = Callable[[Request], Awaitable[Response]]


class Site:
    """One app with one page at every path, behind the middleware. `runs` counts how often the handler ran."""

    def __init__(
        self, handler: Handler | None = None, *, inner: list[Middleware] | None = None, **settings: Any
    ) -> None:
        cdn, declared = settings.pop("cdn", ()), settings.pop("routes", None)
        browser_client = settings.pop("browser_client", None)
        self.engine = HandEngine(**settings)
        self.runs = 0
        self.version = 1

        async def page(request: Request) -> Response:
            self.runs += 1
            if handler is not None:
                return await handler(request)
            reads()
            return JSONResponse({"version": self.version, "query": request.url.query})

        routes = [Route("/{rest:path}", page, methods=["GET", "POST"])]
        app = Starlette(routes=routes, middleware=inner or [])
        self.app = QuaestorMiddleware(
            app, quaestor=self.engine, cdn=cdn, routes=declared, browser_client=browser_client
        )
        transport = httpx.ASGITransport(app=self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://shop.test")

    async def get(self, path: str = "/items", **headers: str) -> httpx.Response:
        return await self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def status_of(response: httpx.Response) -> str:
    return response.headers["cache-status"]


async def until_waiting(tasks: list[asyncio.Task[Any]]) -> None:
    """Run every task until all of them wait."""
    for _ in range(50):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


async def raw_get(site: Site, *, until_body: bool = False, disconnect: asyncio.Event | None = None) -> list[Any]:
    """One GET at ASGI level; ends when the first piece of a body arrives, or when the app has ended."""
    sent: list[Any] = []
    first_body = asyncio.Event()
    requested = False

    async def receive() -> Any:
        nonlocal requested
        if not requested:
            requested = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await (disconnect or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            first_body.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "GET", "scheme": "http",
        "path": "/s", "raw_path": b"/s", "query_string": b"", "headers": [(b"host", b"shop.test")], "root_path": "",
    }  # fmt: skip
    task = asyncio.create_task(site.app(scope, receive, send))
    if until_body:
        async with asyncio.timeout(20):
            await first_body.wait()
        task.cancel()
        await asyncio.wait((task,))
    else:
        async with asyncio.timeout(20):
            await task
    return sent
