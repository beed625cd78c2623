"""`applyOps` has no change event. Sent by a captured client it invalidates the collections that it names: in every process that
shares a Redis; without one, in its own process alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from bson import Timestamp
from fastapi import FastAPI
from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandFailedEvent, CommandStartedEvent

from quaestor import Quaestor
from quaestor.capture.unreported import UnreportedWrites
from quaestor.middleware import QuaestorMiddleware
from tests.end_to_end.test_distributed import grid, pages, workers
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


def _setting(namespace: str, n: int) -> dict[str, Any]:
    return {"op": "u", "ns": namespace, "o2": {"_id": 1}, "o": {"$v": 2, "diff": {"u": {"n": n}}}}


def _nested(operation: dict[str, Any]) -> dict[str, Any]:
    return {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [operation]}}


@pytest.mark.parametrize("shape", [lambda operation: operation, _nested], ids=["plain", "nested"])
async def test_apply_ops_invalidates_in_an_embedded_app(
    mongo_url: str, prefix: str, shape: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """A write by `applyOps` invalidates answers of an embedded app."""
    quaestor, app = Quaestor(mongo_url=mongo_url, deployment=prefix, **PATIENT), FastAPI()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    await client[prefix].pages.insert_one({"_id": 1, "n": 0})

    @app.get("/page")
    async def page() -> dict[str, Any] | None:
        return await client[prefix].pages.find_one({"_id": 1})

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:

        async def hit(n: int) -> bool:
            answer = await http.get("/page")
            return "; hit" in answer.headers.get("cache-status", "") and answer.json()["n"] == n

        await eventually(lambda: hit(0))
        await client.admin.command({"applyOps": [shape(_setting(f"{prefix}.pages", 1))]})
        await eventually(lambda: hit(1))
    await quaestor.stop()
    await client.drop_database(prefix)
    await client.close()


async def test_on_a_grid_in_every_process(mongo_url: str, redis_url: str, prefix: str) -> None:
    with pages(mongo_url, prefix), grid(mongo_url, redis_url, prefix):
        async with workers(mongo_url, redis_url, prefix, staleness_bound_ms=20_000) as (first, second):
            for worker in (first, second):
                await eventually(lambda worker=worker: worker.is_hit(1), within_s=60)
            await first.client.admin.command({"applyOps": [_setting(f"{prefix}.pages", 1)]})
            for worker in (first, second):
                await eventually(lambda worker=worker: worker.shows(1, 1), within_s=30)


@pytest.mark.parametrize(
    ("operations", "namespaces"),
    [
        ([{"op": "i", "ns": "a.b", "o": {"_id": 1}}, {"op": "d", "ns": "a.c", "o": {"_id": 1}}], {"a.b", "a.c"}),
        ([{"op": "n", "ns": "", "o": {"msg": "noop"}}, {"op": "i", "ns": "a.b", "o": {}}], {"a.b"}),
        ([{"op": "c", "ns": "a.$cmd", "o": {"drop": "b"}}], {"a.*"}),
        ([{"op": "c", "ns": "a.$cmd", "o": {"renameCollection": "a.b", "to": "c.d"}}], {"a.*", "c.d"}),
        ([_nested(_nested({"op": "i", "ns": "a.b", "o": {}}))], {"a.b"}),
        ("nobody understands this", {"x.*"}),
    ],
)
async def test_a_command_names_the_namespaces_of_its_operations_also_if_it_fails(
    operations: Any, namespaces: set[str]
) -> None:
    writes, reported = UnreportedWrites(), list[frozenset[str]]()
    writes.follow(reported.append)
    started = CommandStartedEvent({"applyOps": operations, "ts": Timestamp(1, 1)}, "x", 7, ("host", 1), 7)
    writes.started(started)
    failed = CommandFailedEvent(timedelta(0), {"ok": 0}, "applyOps", 7, ("host", 1), 7)
    writes.ended(failed)
    writes.ended(failed)
    assert reported == [frozenset(namespaces)]
