"""Litestar, or any other ASGI framework, with the cache around it: `uvicorn examples.litestar_app:app`."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from litestar import Litestar, get, post
from litestar.params import FromPath
from pymongo import AsyncMongoClient

from middleware import QuaestorMiddleware
from quaestor import Quaestor

quaestor = Quaestor()
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
items = client[os.environ.get("DATABASE", "shop")].items


@dataclass
class Item:
    name: str
    shelf: int


@get("/shelves/{shelf:int}")
async def shelf(shelf: FromPath[int]) -> list[Item]:
    """What stands there, by name."""
    found = items.find({"shelf": shelf}, {"_id": 0}).sort("name", 1)
    return [Item(**one) async for one in found]


@post("/items")
async def put(data: Item) -> Item:
    """One more."""
    await items.insert_one(asdict(data))
    return data


app = QuaestorMiddleware(Litestar([shelf, put]), quaestor=quaestor)  # type: ignore[arg-type]
