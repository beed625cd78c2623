"""FastAPI on MongoDB behind one middleware line: `uvicorn examples.fastapi_app:app`."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pymongo import AsyncMongoClient

from quaestor import Quaestor, QuaestorMiddleware

quaestor = Quaestor()
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
items = client[os.environ.get("DATABASE", "examples")].items

app = FastAPI()
app.add_middleware(QuaestorMiddleware, quaestor=quaestor)


class Item(BaseModel):
    name: str
    shelf: int


@app.get("/shelves/{shelf}")
async def shelf(shelf: int) -> list[Item]:
    """The items of a shelf, by name."""
    return [Item(**document) async for document in items.find({"shelf": shelf}).sort("name", 1)]


@app.post("/items", status_code=201)
async def add(item: Item) -> Item:
    """One more item."""
    await items.insert_one(item.model_dump())
    return item
