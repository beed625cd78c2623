"""Answers that end by the clock, over HTTP, in one process and on a grid: no answer is one instant late, or early."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Now, Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.observability.readings import readings
from tests.oracle.clock_world import StoppedClock
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio
ENDS_IN = timedelta(seconds=2)
MOST_OFFERS = 20
FILTERS: dict[str, Any] = {
    "now": lambda: {"ends": {"$gt": Now()}},
    "$$NOW": lambda: {"$expr": {"$gt": ["$ends", "$$NOW"]}},
    "leading match": lambda: {"$expr": {"$lt": [{"$subtract": ["$$NOW", "$ends"]}, 0]}},
}


class Shop:
    """A list of offers that have not ended, and another client of its database."""

    def __init__(self, mongo_url: str, database: str, name: str, **settings: Any) -> None:
        self.quaestor = Quaestor(**PATIENT | {"ttl_min_ms": 3_600_000, "client_ttl": "estimated"} | settings)
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.bare: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(mongo_url)
        self.offers = self.bare[database].offers
        app = FastAPI()
        app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor, live=True)

        @app.get("/offers")
        async def offers() -> list[Any]:
            collection = self.client[database].offers
            if name == "leading match":
                stages = [{"$match": FILTERS[name]()}, {"$group": {"_id": "$_id"}}, {"$sort": {"_id": 1}}]
                return [group["_id"] async for group in await collection.aggregate(stages)]
            return [offer["_id"] async for offer in collection.find(FILTERS[name]()).sort("_id", 1)]

        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop.test")

    async def get(self) -> tuple[list[Any], str, httpx.Headers]:
        answer = await self.http.get("/offers")
        return answer.json(), answer.headers["cache-status"], answer.headers

    async def hit(self) -> bool:
        return "hit" in (await self.get())[1]


@asynccontextmanager
async def shop(mongo_url: str, database: str, name: str, **settings: Any) -> AsyncIterator[Shop]:
    made = Shop(mongo_url, database, name, **settings)
    await made.quaestor.start()
    try:
        yield made
    finally:
        await made.http.aclose()
        await made.quaestor.stop()
        await made.client.close()
        made.bare.close()


@pytest.mark.parametrize("name", FILTERS)
async def test_an_offer_leaves_the_list_at_the_instant_of_its_end(
    mongo_url: str, prefix: str, settings: dict[str, Any], name: str
) -> None:
    """The list is a hit until then. No write, no purge and no message ends it."""
    async with shop(mongo_url, prefix, name, **settings) as made:
        made.offers.insert_one({"_id": "always", "ends": datetime(9000, 1, 1)})
        await eventually(made.hit)
        for number in range(MOST_OFFERS):  # a loaded machine may not store the list in time
            if await hit_until_the_end(made, f"soon {number}"):
                return
        raise AssertionError("the list was no hit before the end of any offer")


@pytest.mark.parametrize("name", ["now", "next hour", "leading match"])
async def test_a_verification_compares_queries_as_of_one_moment(
    mongo_url: str, prefix: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later run has other times in its filter, and the same queries: the route is not quarantined."""
    monkeypatch.setitem(FILTERS, "next hour", lambda: {"ends": {"$gt": Now(), "$lte": Now() + timedelta(hours=1)}})
    async with shop(mongo_url, prefix, name, verification=True) as made:
        made.offers.insert_one({"_id": "later", "ends": datetime.now(UTC) + timedelta(minutes=30)})

        async def verified() -> bool:
            await made.get()
            return verdicts(made)["same"] + verdicts(made)["diverged"] > 0

        await eventually(verified, within_s=60)
        assert verdicts(made)["diverged"] == 0
        await eventually(made.hit)


def verdicts(made: Shop) -> dict[str, int]:
    """Verifications so far, by their verdict."""
    numbers = readings(made.quaestor.telemetry.families.registry).get("verifications", {})
    return {verdict: int(numbers.get(verdict, 0)) for verdict in ("same", "diverged")}


async def hit_until_the_end(made: Shop, name: str) -> bool:
    """Offer something that ends soon, and look until it has ended. Returns whether it came from the cache before."""
    ends = datetime.now(UTC) + ENDS_IN
    ends = ends.replace(microsecond=ends.microsecond // 1000 * 1000)
    made.offers.insert_one({"_id": name, "ends": ends})
    hit = False
    while True:
        before = datetime.now(UTC)
        found, status, _ = await made.get()
        if before >= ends:
            assert name not in found, (before - ends, status)
            break
        hit |= name in found and "hit" in status
    await eventually(made.hit)
    assert name not in (await made.get())[0]
    return hit


async def test_an_offer_that_is_scheduled_later_enters_in_time(
    mongo_url: str, prefix: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its write changes nothing, so the list stays a hit; the grid ends the list at the instant."""
    monkeypatch.setitem(FILTERS, "starts", lambda: {"starts": {"$lte": Now()}})
    async with shop(mongo_url, prefix, "starts", **settings) as made:
        made.offers.insert_one({"_id": "always", "starts": datetime(2000, 1, 1)})
        await eventually(made.hit)
        starts = datetime.now(UTC) + ENDS_IN
        made.offers.insert_one({"_id": "soon", "starts": starts})
        await made.quaestor.settled(within_s=30)
        early = True
        end_s = time.monotonic() + 30
        while early:
            before = datetime.now(UTC)
            found, status, _ = await made.get()
            assert "hit" in status or before + timedelta(milliseconds=50) >= starts
            early = found == ["always"]
            assert early or datetime.now(UTC) >= starts
            assert time.monotonic() < end_s, "the offer never enters"
        assert await made.hit() or found == ["always", "soon"]


async def test_a_follower_receives_the_list_at_the_instant(
    mongo_url: str, prefix: str, settings: dict[str, Any]
) -> None:
    """A long poll is answered when the offer ends, without any write."""
    async with shop(mongo_url, prefix, "now", **settings) as made:
        await eventually(made.hit)
        ends = datetime.now(UTC) + 4 * ENDS_IN
        made.offers.insert_one({"_id": "soon", "ends": ends})
        await made.quaestor.settled(within_s=30)
        found, _, headers = await made.get()
        assert found == ["soon"]
        conditions = {"if-none-match": headers["etag"], "prefer": "wait=20"}
        answer = await made.http.get("/offers", headers=conditions, timeout=60)
        assert (answer.status_code, answer.json()) == (200, [])
        assert datetime.now(UTC) >= ends


async def test_no_lifetime_outside_goes_beyond_the_instant(mongo_url: str, prefix: str) -> None:
    """max-age less Age is the rest of the answer's life, rounded down to whole seconds."""
    clock = StoppedClock()
    async with shop(mongo_url, prefix, "now", clock=clock) as made:
        ends_ms = clock.now_ms + 7_450
        made.offers.insert_one({"_id": "soon", "ends": datetime.fromtimestamp(ends_ms / 1000, UTC)})
        await eventually(made.hit)
        while clock.now_ms < ends_ms:
            found, status, headers = await made.get()
            left_s = int(headers["cache-control"].partition("max-age=")[2].split(",")[0]) - int(headers["age"])
            rest_ms = ends_ms - clock.now_ms
            assert found == ["soon"]
            assert "hit" in status
            assert (rest_ms - 100) // 1000 <= left_s <= max(0, rest_ms // 1000), (left_s, rest_ms)
            clock.now_ms += 61
        clock.now_ms = ends_ms
        found, status, _ = await made.get()
        assert (found, "hit" in status) == ([], False)
