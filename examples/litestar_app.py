"""Litestar, or any other ASGI framework, with the cache around it: `uvicorn examples.litestar_app:app`."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from litestar import Litestar, get, post
from litestar.params import FromPath
from pymongo import AsyncMongoClient

from quaestor import Quaestor, QuaestorMiddleware

quaestor = Quaestor()
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
items = client[os.environ.get("DATABASE", "examples")].items


@dataclass
class Item:
    name: str
    shelf: int


@get("/shelves/{shelf:int}")
async def shelf(shelf: FromPath[int]) -> list[Item]:
    """The items of a shelf, by name."""
    found = items.find({"shelf": shelf}, {"_id": 0}).sort("name", 1)
    return [Item(**document) async for document in found]


@post("/items")
async def add(data: Item) -> Item:
    """One more item."""
    await items.insert_one(asdict(data))
    return data


app = QuaestorMiddleware(Litestar([shelf, add]), quaestor=quaestor)  # type: ignore[arg-type]
