"""Several workers that share one Redis, with the matching grid beside them: `uvicorn examples.redis_grid_app:app --workers 2`.

The same as one process on its own, but for `from_env()`: MONGO_URL and REDIS_URL say where everything is, also to
`quaestor cluster`.
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
