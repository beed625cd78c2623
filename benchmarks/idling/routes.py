"""Route of both apps."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pymongo import AsyncMongoClient


def with_items(app: FastAPI, client: AsyncMongoClient[dict[str, Any]]) -> FastAPI:
    """The app with a route that reads a collection."""

    @app.get("/items")
    async def items() -> list[Any]:
        return await client.idle.items.find({"a": 1}, {"_id": 0}).to_list()

    return app
