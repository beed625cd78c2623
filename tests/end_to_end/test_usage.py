"""Hits of a real app reach the matching node as demand, so that it knows what to keep."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_query_event
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Registration, Usage
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


async def test_hits_are_reported_by_query_within_seconds(mongo_url: str, prefix: str) -> None:
    quaestor = Quaestor(**PATIENT)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    items = client[prefix].items
    layer, queries = quaestor.parts.storage.layer, streams.queries("default", 0)

    @app.get("/items/{kind}")
    async def of(kind: str) -> list[dict[str, Any]]:
        return await items.find({"kind": kind}).to_list()

    def said() -> list[Any]:
        return [decode_query_event(entry.payload) for entry in layer.read({queries: "0"}, count=1_000, block_ms=0)]

    await items.insert_one({"_id": 1, "kind": "a"})
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://site") as http:
        try:

            async def hit(path: str) -> bool:
                answer = await http.get(path)
                return "hit" in answer.headers.get("cache-status", "")

            await eventually(lambda: hit("/items/a"))
            for _ in range(20):
                await http.get("/items/a")
            await http.get("/items/b")
            await eventually(
                lambda: sum(reads for usage in said() if isinstance(usage, Usage) for _, reads in usage.queries) >= 21
            )
            registered = {
                message.query.filter["kind"]: message.query_id
                for message in said()
                if isinstance(message, Registration)
            }
            reported = {query_id for usage in said() if isinstance(usage, Usage) for query_id, _ in usage.queries}
            assert reported == {registered["a"]}, "what was never served from cache is not reported"
        finally:
            await quaestor.stop()
            await client.drop_database(prefix)
            await client.close()
