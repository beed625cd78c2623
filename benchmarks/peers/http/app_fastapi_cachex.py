"""FastAPI-CacheX: a decorator on the handler, entries in memory."""

from typing import Any

from common import TTL_S, reader
from fastapi import FastAPI
from fastapi_cachex import BackendProxy, cache
from fastapi_cachex.backends import MemoryBackend


def create_app() -> FastAPI:
    app, read = FastAPI(), reader()
    BackendProxy.set(MemoryBackend())

    @app.get("/items")
    @cache(ttl=TTL_S)
    async def items(n: int = 0) -> list[dict[str, Any]]:
        return await read()

    return app
