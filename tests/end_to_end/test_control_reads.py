"""Answers can be invalidated by URL and by tag, and this costs the database no read."""

from __future__ import annotations

from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor, cached
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


async def test_storing_an_answer_reads_no_record_of_its_url(mongo_url: str, prefix: str) -> None:
    """mongod's profile lists every read. The contributors of the answers' own queries are among them."""
    app, control = FastAPI(), f"{prefix}_control"
    quaestor = Quaestor(control_namespace=f"{control}.control", **PATIENT)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/items")
    @cached(tags=["items"])
    async def items(kind: int) -> int:
        return await client[prefix].items.count_documents({"kind": kind})

    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        other[prefix].items.insert_many([{"_id": n, "kind": n % 3} for n in range(30)])
        other[control].control.insert_one({"_id": "another"})
        for database in (prefix, control):
            other[database].command("profile", 2)

        def contributors_read() -> bool:
            read = {"op": "query", "ns": f"{prefix}.items", "command.find": "items"}
            return other[prefix]["system.profile"].count_documents(read) > 0

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:

            async def is_hit(path: str) -> bool:
                return "; hit" in (await http.get(path)).headers["cache-status"]

            for kind in range(3):
                await eventually(lambda kind=kind: is_hit(f"/items?kind={kind}"))  # type: ignore[misc]
            await eventually(contributors_read)
            asked = other[control]["system.profile"].count_documents({"ns": f"{control}.control", "op": "query"})
            assert asked == 0
            await quaestor.invalidate(urls=["/items?kind=1"])

            async def is_made_anew() -> bool:
                return not await is_hit("/items?kind=1")

            await eventually(is_made_anew)
        for database in (prefix, control):
            other[database].command("profile", 0)
            other.drop_database(database)
    await quaestor.stop()
    await client.close()
