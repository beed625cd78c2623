"""An embedded application as a process of its own: `python -m tests.end_to_end.embedded_app MONGO_URL DATABASE PORT`."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT


def application(mongo_url: str, database: str) -> FastAPI:
    """Pages of records, with lifetimes of an hour."""
    quaestor = Quaestor(ttl_min_ms=3_600_000, **PATIENT)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/pages/{key}")
    async def page(key: int) -> dict[str, Any] | None:
        return await client[database].items.find_one({"_id": key})

    return app


if __name__ == "__main__":
    uvicorn.run(application(*sys.argv[1:3]), host="127.0.0.1", port=int(sys.argv[3]), log_level="error", ws="none")
