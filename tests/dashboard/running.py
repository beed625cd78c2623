"""Apps with a dashboard in this loop, started and ended as a server does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from quaestor import AdminToken, Dashboard, Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App, Receive, Scope, Send
from tests.support import PATIENCE_S

TOKEN = "5t0Zk_v1r-0mXbQeYw8LhN2dPfJ7sUaC"
VIEWERS = "q9Vx3-Lk7_aB2mNc5TzR8wEy1UoPiJhG"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}
VIEWER = {"authorization": f"Bearer {VIEWERS}"}
HERE = "/quaestor/dashboard"


async def plain(scope: Scope, receive: Receive, send: Send) -> None:
    """An app whose answers may be kept for a while, by their own word."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    headers = [(b"content-type", b"text/plain"), (b"cache-control", b"max-age=600")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    """The app's life, from its startup to its shutdown."""
    to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    running = asyncio.create_task(app({"type": "lifespan"}, to_app.get, from_app.put))  # type: ignore[arg-type]
    await to_app.put({"type": "lifespan.startup"})
    assert (await asyncio.wait_for(from_app.get(), PATIENCE_S))["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        await asyncio.wait_for(running, PATIENCE_S)


@asynccontextmanager
async def watched(app: App = plain, *, settings: Any = None, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app with a dashboard.

    settings: of its Quaestor; a plain HTTP cache without them.
    """
    quaestor = Quaestor(**({"grid": False, "explicit": True} | (settings or {})))
    dashboard = Dashboard(**({"token": AdminToken(TOKEN), "viewer_token": AdminToken(VIEWERS)} | options))
    cache = QuaestorMiddleware(app, quaestor=quaestor, dashboard=dashboard)
    transport = httpx.ASGITransport(cache)  # type: ignore[arg-type]
    async with lifespan(cache), httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
        yield client
