"""FastAPI without a cache."""

from typing import Any

from common import reader
from fastapi import FastAPI


def create_app() -> FastAPI:
    app, read = FastAPI(), reader()

    @app.get("/items")
    async def items(n: int = 0) -> list[dict[str, Any]]:
        return await read()

    return app
