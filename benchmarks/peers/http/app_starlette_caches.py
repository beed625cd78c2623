"""starlette-caches: ASGI middleware, entries in aiocache's memory."""

from typing import Any

from aiocache import Cache
from common import TTL_S, reader
from fastapi import FastAPI
from starlette_caches.middleware import CacheMiddleware


def create_app():
    app, read = FastAPI(), reader()

    @app.get("/items")
    async def items(n: int = 0) -> list[dict[str, Any]]:
        return await read()

    return CacheMiddleware(app, cache=Cache(ttl=TTL_S))
