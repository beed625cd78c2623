"""A node that is too small for what an app caches: hot pages stay, the rest goes uncached, nothing is ever stale."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

PAGES = 60
HOT = 5
ROOM_BYTES = 20_000
"""For about 17 queries."""


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a test are young."""
    original = MatchingNode.__init__

    def eager(self: MatchingNode, *args: Any, **options: Any) -> None:
        original(self, *args, **options | {"limits": replace(options["limits"], grace_ms=0)})

    monkeypatch.setattr(MatchingNode, "__init__", eager)


@pytest.mark.usefixtures("no_grace")
async def test_hot_pages_stay_cached_and_no_page_is_stale(mongo_url: str, prefix: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    dice = random.Random(seed)
    quaestor = Quaestor(**PATIENT, node_memory_bytes=ROOM_BYTES)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    items = client[prefix].items

    @app.get("/pages/{number}")
    async def page(number: int) -> list[dict[str, Any]]:
        return await items.find({"_id": number}).to_list()

    truth = dict.fromkeys(range(PAGES), 0)
    await items.insert_many([{"_id": number, "value": 0} for number in range(PAGES)])
    metric = quaestor.telemetry.families.registry.get_sample_value
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:

        async def get(number: int) -> tuple[bool, int]:
            answer = await http.get(f"/pages/{number}")
            return "hit" in answer.headers.get("cache-status", ""), answer.json()[0]["value"]

        async def hit(number: int) -> bool:
            return (await get(number))[0]

        written = [0]

        async def shows() -> bool:
            return (await get(written[-1]))[1] == truth[written[-1]]

        async def both_withdrawn_and_hot() -> bool:
            """Traffic, until the node had to give up pages and yet holds all the hot ones."""
            for _ in range(30):
                await get(dice.randrange(HOT))
            await get(dice.randrange(HOT, PAGES))
            return (metric("quaestor_withdrawn_total") or 0) > 3 and all([await hit(number) for number in range(HOT)])

        try:
            await eventually(lambda: hit(0))
            await eventually(both_withdrawn_and_hot, within_s=60)
            for _ in range(40):
                number = dice.randrange(PAGES)
                truth[number] += 1
                await items.update_one({"_id": number}, {"$inc": {"value": 1}})
                written.append(number)
                await eventually(shows)
            for number in range(PAGES):
                assert (await get(number))[1] == truth[number]
        finally:
            await quaestor.stop()
            await client.drop_database(prefix)
            await client.close()
