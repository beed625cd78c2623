"""hishel: ASGI middleware by URL (its `rfc=False`), entries in SQLite's memory, the fastest storage it has."""

from typing import Any

import anysqlite
from common import TTL_S, reader
from fastapi import FastAPI
from hishel import AsyncSqliteStorage
from hishel.asgi import ASGICacheMiddleware


def create_app():
    app, read = FastAPI(), reader()

    @app.get("/items")
    async def items(n: int = 0) -> list[dict[str, Any]]:
        return await read()

    cached = None

    async def lazily(scope, receive, send):
        nonlocal cached
        if cached is None:
            storage = AsyncSqliteStorage(connection=await anysqlite.connect(":memory:"), default_ttl=TTL_S)
            cached = ASGICacheMiddleware(app, storage=storage, rfc=False)
        await cached(scope, receive, send)

    return lazily
