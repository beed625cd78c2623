"""fastapi-cache2: a decorator on the handler, entries in memory."""

from typing import Any

from common import TTL_S, reader
from fastapi import FastAPI
from fastapi_cache import FastAPICache
from fastapi_cache.backends.inmemory import InMemoryBackend
from fastapi_cache.decorator import cache


def create_app() -> FastAPI:
    app, read = FastAPI(), reader()
    FastAPICache.init(InMemoryBackend(), prefix="bench")

    @app.get("/items")
    @cache(expire=TTL_S)
    async def items(n: int = 0) -> list[dict[str, Any]]:
        return await read()

    return app
