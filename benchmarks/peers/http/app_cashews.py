"""cashews: a decorator on the handler, entries in memory."""

from typing import Any

from cashews import cache
from common import TTL_S, reader
from fastapi import FastAPI


def create_app() -> FastAPI:
    app, read = FastAPI(), reader()
    cache.setup("mem://?size=100000")

    @app.get("/items")
    @cache(ttl=TTL_S, key="items:{n}")
    async def items(n: int = 0) -> list[dict[str, Any]]:
        return await read()

    return app
