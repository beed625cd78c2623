"""Several workers that share one Redis: `uvicorn examples.redis_app:app --workers 2`.

Only `from_env()` differs from one process on its own: it reads MONGO_URL and REDIS_URL. The workers elect one among them to run
the matching for all. `quaestor grid` reads the same variables and takes over from the elected worker.
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, Response
from pydantic import BaseModel
from pymongo import AsyncMongoClient

from quaestor import Quaestor, QuaestorMiddleware

quaestor = Quaestor.from_env()
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
items = client[os.environ.get("DATABASE", "examples")].items

app = FastAPI()
app.add_middleware(QuaestorMiddleware, quaestor=quaestor)


class Item(BaseModel):
    name: str
    shelf: int


@app.get("/shelves/{shelf}")
async def shelf(shelf: int, response: Response) -> list[Item]:
    """The items of a shelf, by name; X-Worker names the process that made the answer."""
    response.headers["x-worker"] = str(os.getpid())
    return [Item(**document) async for document in items.find({"shelf": shelf}).sort("name", 1)]


@app.post("/items", status_code=201)
async def add(item: Item) -> Item:
    """One more item."""
    await items.insert_one(item.model_dump())
    return item
