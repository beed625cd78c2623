"""Application under load: records and queries of ten collections, with Quaestor if there is a CDN to purge."""

from __future__ import annotations

import os
from typing import Any, Final

import pymongo
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks.query_caching.mix import COLLECTIONS, QUERIES, RECORDS
from quaestor import Quaestor
from quaestor.cdn_adapters import VarnishAdapter
from quaestor.middleware import QuaestorMiddleware

DATABASE: Final = "quaestor_fig58"
APP: Final = "benchmarks.query_caching.app:fig58_app"
CDN: Final = "BENCHMARK_VARNISH"
"""Variable with the CDN's URL, as the application reaches it."""
SPARE: Final = COLLECTIONS
"""Collection that the mix does not touch: service times are measured on it."""


def fig58_app() -> FastAPI:
    """The application."""
    application = FastAPI()
    listeners = []
    if (cdn := os.environ.get(CDN)) is not None:
        quaestor = Quaestor.from_env()
        listeners.append(quaestor.capture)
        application.add_middleware(QuaestorMiddleware, quaestor=quaestor, cdn=[VarnishAdapter(cdn)])
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=listeners)
    database = client[DATABASE]

    @application.get("/records/{collection}/{key}")
    async def record(collection: int, key: int) -> dict[str, Any] | None:
        return await database[f"c{collection}"].find_one({"_id": key})

    @application.get("/queries/{collection}/{group}")
    async def query(collection: int, group: int) -> list[dict[str, Any]]:
        return await database[f"c{collection}"].find({"group": group}).sort("_id", 1).to_list()

    @application.put("/records/{collection}/{key}")
    async def update(collection: int, key: int) -> dict[str, Any] | None:
        return await database[f"c{collection}"].find_one_and_update(
            {"_id": key}, {"$inc": {"n": 1}}, return_document=pymongo.ReturnDocument.AFTER
        )

    @application.post("/records/{collection}/{key}")
    async def insert(collection: int, key: int, group: int) -> dict[str, Any]:
        new = record_of(key, group)
        await database[f"c{collection}"].insert_one(new)
        return new

    @application.delete("/records/{collection}/{key}")
    async def delete(collection: int, key: int) -> dict[str, int]:
        return {"deleted": (await database[f"c{collection}"].delete_one({"_id": key})).deleted_count}

    return application


def record_of(key: int, group: int) -> dict[str, Any]:
    """A record as it is at first; n counts its updates."""
    return {"_id": key, "group": group, "n": 0, "text": "x" * 100}


def fill(mongo: str) -> None:
    """Make the collections as they are before a run, the spare one too."""
    with pymongo.MongoClient[dict[str, Any]](mongo) as client:
        client.drop_database(DATABASE)
        for collection in range(COLLECTIONS + 1):
            table = client[DATABASE][f"c{collection}"]
            table.insert_many([record_of(key, key % QUERIES) for key in range(RECORDS)])
            table.create_index("group")
