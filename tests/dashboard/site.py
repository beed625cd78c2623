"""An app with a dashboard under uvicorn in a thread of its own, below a prefix that is stripped before it, as behind a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pymongo
import uvicorn
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import AdminToken, Dashboard, Quaestor, cached, public
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App, Receive, Scope, Send
from quaestor.testing.serving import served_by_uvicorn
from tests.support import PATIENT

TOKEN = "5t0Zk_v1r-0mXbQeYw8LhN2dPfJ7sUaC"
VIEWERS = "q9Vx3-Lk7_aB2mNc5TzR8wEy1UoPiJhG"
PREFIX = "/internal/shop"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@dataclass(slots=True)
class Site:
    """A running site. url: below it lies the dashboard, as `quaestor/dashboard/`."""

    quaestor: Quaestor
    url: str
    writer: pymongo.MongoClient[dict[str, Any]]
    database: str

    def read(self, group: int) -> httpx.Response:
        return httpx.get(f"{self.url}/items/{group}", timeout=60)

    def write(self, group: int) -> None:
        self.writer[self.database].items.update_one({"group": group}, {"$inc": {"n": 1}})


def stripped(app: App) -> App:
    """Forward requests without the prefix, as a proxy does that does not mention the prefix."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if not scope["path"].startswith(PREFIX + "/"):
                await send({"type": "http.response.start", "status": 404, "headers": []})
                return await send({"type": "http.response.body", "body": b""})
            scope = {**scope, "path": scope["path"].removeprefix(PREFIX)}
            scope["raw_path"] = scope["raw_path"].removeprefix(PREFIX.encode())
        return await app(scope, receive, send)

    return call


@contextmanager
def site(
    mongo_url: str, database: str, trace: Path | None = None, settings: dict[str, Any] | None = None, **options: Any
) -> Iterator[Site]:
    """A site with an embedded cache, and with a trace if it has a place."""
    traced = {"trace_file": str(trace)} if trace is not None else {}
    quaestor = Quaestor(trust_new_sketch=True, **PATIENT | traced | (settings or {}))
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        await client.close()

    app = FastAPI(lifespan=closing)

    @app.get("/items/{group}")
    @cached(scope=public())
    async def items(group: int) -> list[dict[str, Any]]:
        return await client[database].items.find({"group": group}, {"_id": 1, "n": 1}).sort("_id").to_list()

    dashboard = Dashboard(token=AdminToken(TOKEN), viewer_token=AdminToken(VIEWERS), **options)
    cache = QuaestorMiddleware(app, quaestor=quaestor, dashboard=dashboard)
    configured = uvicorn.Config(
        stripped(cache),
        port=0,
        loop="asyncio",
        log_level="error",
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=5,
    )
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as writer:
        writer[database].items.insert_many([{"_id": i, "group": i % 10, "n": 0} for i in range(50)])
        try:
            with served_by_uvicorn(configured) as url:
                yield Site(quaestor, url + PREFIX, writer, database)
        finally:
            writer.drop_database(database)
