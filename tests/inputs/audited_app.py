"""An application as `quaestor audit` is given it: some routes are covered, some are not, one answers otherwise each time."""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor, uncacheable
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT

quaestor = Quaestor(**PATIENT)
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
items = client[os.environ["AUDITED_DATABASE"]].items
app = FastAPI()
app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
counter = itertools.count()
settings: list[Any] = []


@app.get("/items")
async def listed() -> list[dict[str, Any]]:
    """Covered."""
    return await items.find({"group": 1}).sort("_id").to_list()


@app.get("/items/{item}")
async def single(item: int) -> dict[str, Any] | None:
    """Covered."""
    return await items.find_one({"_id": item})


@app.get("/kept")
async def kept() -> int:
    """Reads its settings once."""
    if not settings:
        settings.append(await items.find_one({"_id": "settings"}))
    return await items.count_documents({"group": 1})


@app.get("/now")
async def recent() -> list[dict[str, Any]]:
    """Looks at the clock."""
    return await items.find({"at": {"$lt": datetime.now(UTC)}}).to_list()


@app.get("/file")
async def declared() -> int:
    """Says itself that it reads something else."""
    uncacheable("reads a file")
    return await items.count_documents({})


@app.get("/constant")
async def constant() -> str:
    """Reads nothing."""
    return "hello"


@app.get("/broken")
async def broken() -> None:
    """Raises."""
    raise RuntimeError("broken")


if "AUDITED_COUNTER" in os.environ:

    @app.get("/counted")
    async def counted() -> list[int]:
        """Counts how often it was asked."""
        return [await items.count_documents({"group": 1}), next(counter)]
