"""The app under test: pages of one record and lists of a group, read with plain pymongo, one process a worker.

Outside of the cache, around the middleware, each response gets two fields. `X-Known` names the invalidations of this page that
the worker had processed when the request came in. `X-LagMonitor` names the query partitions that guard the page.
`create_broken_app` has a cache of its own instead, one that never hears of a write.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pymongo import AsyncMongoClient
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quaestor import Quaestor
from quaestor.invalidation.registry.registration_ids import partition_of
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Invalidated

DATABASE = "SITE_DATABASE"
KNOWN = "x-known"
COLUMNS = "x-columns"
_path: contextvars.ContextVar[str] = contextvars.ContextVar("path", default="")


class Known:
    """ASGI around everything: notes what the registry hears, tells it with each answer."""

    def __init__(self, app: ASGIApp, quaestor: Quaestor) -> None:
        self._app = app
        self._pages: dict[str, str] = {}
        self._columns: dict[str, set[int | None]] = {}
        self._versions: dict[str, dict[Any, int]] = {}
        registry: Any = quaestor.registry
        register = registry.register

        def invalidated(batch: Sequence[Invalidated]) -> None:
            for notification in batch:
                page = self._pages.get(notification.query_id)
                if page is not None and notification.version and notification.key is not None:
                    versions = self._versions.setdefault(page, {})
                    versions[notification.key] = max(notification.version, versions.get(notification.key, 0))

        async def registered(*args: Any, **options: Any) -> Any:
            path = _path.get()
            registered = await register(*args, **options)
            self._columns[path] = {
                partition_of(registration_id, registry.shape.query_partitions) for registration_id in registered.ids
            }
            for query_id in registered.query_ids:
                self._pages[query_id] = path
            return registered

        quaestor.parts.events.invalidated.subscribe(invalidated)
        registry.register = registered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _path.set(scope["path"])
        known = dict(self._versions.get(scope["path"], {}))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and known:
                known_versions = ",".join(f"{key}:{version}" for key, version in known.items())
                message["headers"] = [*message["headers"], (KNOWN.encode(), known_versions.encode())]
            if message["type"] == "http.response.start" and (columns := self._columns.get(scope["path"])):
                message["headers"] = [*message["headers"], (COLUMNS.encode(), ",".join(map(str, columns)).encode())]
            await send(message)

        await self._app(scope, receive, sending)


def create_app() -> ASGIApp:
    """Settings come from the environment; MONGO_URL and SITE_DATABASE say where the records are."""
    quaestor = Quaestor.from_env(ttl_min_ms=600_000, verification=False)
    app = _pages([quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    return Known(app, quaestor)


def create_broken_app() -> ASGIApp:
    app = _pages([])
    entries: dict[str, bytes] = {}

    @app.middleware("http")
    async def cache(request: Any, call_next: Any) -> Response:
        path = request.url.path
        if path in entries:
            return Response(entries[path], media_type="application/json", headers={"cache-status": "broken; hit"})
        answer = await call_next(request)
        body = b"".join([part async for part in answer.body_iterator])
        entries[path] = body
        return Response(body, media_type="application/json")

    return app


def _pages(listeners: list[Any]) -> FastAPI:
    app = FastAPI()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        os.environ["MONGO_URL"], event_listeners=listeners, serverSelectionTimeoutMS=1_500, connectTimeoutMS=1_500,
        timeoutMS=4_000,
    )  # fmt: skip
    records = client[os.environ[DATABASE]].records

    async def shown(rows: list[dict[str, Any]]) -> JSONResponse:
        return JSONResponse({str(row["_id"]): row["n"] for row in rows})

    @app.get("/page/{key}")
    async def page(key: int) -> JSONResponse:
        row = await records.find_one({"_id": key})
        return await shown([row] if row else [])

    @app.get("/group/{group}")
    async def group(group: int) -> JSONResponse:
        return await shown(await records.find({"group": group}).sort("_id", 1).to_list())

    @app.get("/health")
    async def health() -> dict[str, int]:
        await asyncio.sleep(0)
        return {"pid": os.getpid()}

    return app
