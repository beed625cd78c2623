"""Beanie, with the client made in the lifespan: `uvicorn examples.beanie_app:app`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from beanie import Document, init_beanie
from fastapi import FastAPI
from pydantic import BaseModel
from pymongo import AsyncMongoClient

from quaestor import Quaestor, QuaestorMiddleware

quaestor = Quaestor()


class Item(BaseModel):
    name: str
    shelf: int


class StoredItem(Document, Item):
    class Settings:
        name = "items"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        os.environ["MONGO_URL"], event_listeners=[quaestor.capture]
    )
    await init_beanie(client[os.environ.get("DATABASE", "examples")], document_models=[StoredItem])
    yield
    await client.close()


app = FastAPI(lifespan=lifespan)
app.add_middleware(QuaestorMiddleware, quaestor=quaestor)


@app.get("/shelves/{shelf}", response_model=list[Item])
async def shelf(shelf: int) -> list[StoredItem]:
    """The items of a shelf, by name."""
    return await StoredItem.find(StoredItem.shelf == shelf).sort("+name").to_list()


@app.post("/items", status_code=201)
async def add(item: Item) -> Item:
    """One more item."""
    await StoredItem(**item.model_dump()).insert()
    return item
