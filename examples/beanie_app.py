"""Beanie, with the client made in the lifespan: `uvicorn examples.beanie_app:app`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from beanie import Document, init_beanie
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from middleware import QuaestorMiddleware
from quaestor import Quaestor

quaestor = Quaestor()


class Item(Document):
    name: str
    shelf: int

    class Settings:
        name = "items"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        os.environ["MONGO_URL"], event_listeners=[quaestor.capture]
    )
    await init_beanie(client[os.environ.get("DATABASE", "shop")], document_models=[Item])
    yield
    await client.close()


app = FastAPI(lifespan=lifespan)
app.add_middleware(QuaestorMiddleware, quaestor=quaestor)


@app.get("/shelves/{shelf}")
async def shelf(shelf: int) -> list[dict[str, Any]]:
    """What stands there, by name."""
    found = await Item.find(Item.shelf == shelf).sort("+name").to_list()
    return [{"name": one.name, "shelf": one.shelf} for one in found]


@app.post("/items", status_code=201)
async def put(item: Item) -> None:
    """One more."""
    await item.insert()
