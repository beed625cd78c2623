"""Answers that differ because a view was defined anew or the database was restored: no fault of the handler, no quarantine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pymongo
import pytest
from fastapi import FastAPI, Request
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.capture.catalog import Catalog
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.verification import Sample, Verifications
from quaestor.read_path import verification_samples
from quaestor.read_path.verification import Finding
from tests.inputs.verified_site import is_hit, verified_site
from tests.recovery.older_copy import aging_mongod
from tests.support import PATIENCE_S, PATIENT, eventually

pytestmark = pytest.mark.anyio

ALWAYS = {
    "verification": True, "probation_answers": 0, "verify_share": 1.0, "verify_per_second": 100.0, "ttl_min_ms": 600_000,
}  # fmt: skip
"""Every hit is looked into, and no entry ends by itself."""


@pytest.fixture(autouse=True)
def every_answer_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick machine stores several answers in 10 ms; one of them would be sampled."""
    monkeypatch.setattr(verification_samples, "SAMPLE_EVERY_MS", 0)


@asynccontextmanager
async def app_of(
    mongo_url: str, page: Callable[[AsyncMongoClient[dict[str, Any]]], Awaitable[Any]], **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Quaestor]]:
    """An app with one page, whose handler asks the database."""
    quaestor, app = Quaestor(mongo_url=mongo_url, **(PATIENT | ALWAYS | settings)), FastAPI()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        mongo_url, event_listeners=[quaestor.capture], serverSelectionTimeoutMS=int(1_000 * PATIENCE_S)
    )
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/page")
    async def handler() -> Any:
        return await page(client)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:
        yield http, quaestor
    await quaestor.stop()
    await client.close()


def verified(quaestor: Quaestor, verdict: str) -> float:
    """The number of verifications with this verdict."""
    count = quaestor.telemetry.families.registry.get_sample_value
    return count("quaestor_verifications_total", {"verdict": verdict}) or 0.0


async def shows(http: httpx.AsyncClient, expected: Any, *, hit: bool = False) -> bool:
    """Whether the page answers this now, from the cache where `hit` asks for that."""
    answer = await http.get("/page")
    cached = "; hit" in answer.headers.get("cache-status", "")
    return bool(answer.status_code == 200 and answer.json() == expected and (cached or not hit))


async def test_a_view_that_is_defined_anew_unseen_ends_its_answers_and_bars_no_route(
    mongo_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event reports the collMod, and no poll comes in time: a verification finds out, and looks the definitions up first."""

    async def never(self: Catalog, *arguments: object, **named: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Catalog, "run", never)
    monkeypatch.setattr(RecordSource, "stage", {"fullDocument": "updateLookup"})

    async def page(client: AsyncMongoClient[dict[str, Any]]) -> list[int]:
        return [record["_id"] async for record in client[prefix].shown.find().sort("_id", 1)]

    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        database = other[prefix]
        database.c.insert_many([{"_id": key, "n": key % 2} for key in range(4)])
        database.create_collection("shown", viewOn="c", pipeline=[{"$match": {"n": 1}}])
        async with app_of(mongo_url, page) as (http, quaestor):
            await eventually(lambda: shows(http, [1, 3], hit=True))
            database.command("collMod", "shown", viewOn="c", pipeline=[{"$match": {"n": 0}}])
            await eventually(lambda: shows(http, [0, 2]))
            await eventually(lambda: shows(http, [0, 2], hit=True))
            await eventually(lambda: verified(quaestor, "excused") > 0)  # counted after its effects
            assert verified(quaestor, "diverged") == 0
            assert quaestor.read_path.probation.quarantines == []
        other.drop_database(prefix)


@pytest.mark.timeout(300)
async def test_a_restored_database_ends_the_answers_and_bars_no_route(tmp_path: Path, prefix: str) -> None:
    """A mongod on an older copy of its files, while every hit is verified."""

    async def page(client: AsyncMongoClient[dict[str, Any]]) -> Any:
        return await client[prefix].pages.find_one({"_id": 0})

    with aging_mongod(tmp_path, prefix, "pages") as aging:
        async with app_of(aging.url, page) as (http, quaestor):
            await eventually(lambda: shows(http, {"_id": 0, "n": 1}, hit=True))
            await eventually(lambda: verified(quaestor, "same") > 0)
            aging.go_back()
            await eventually(lambda: shows(http, {"_id": 0, "n": 0}, hit=True))
            assert verified(quaestor, "diverged") == 0
            assert quaestor.read_path.probation.quarantines == []


async def test_an_answer_of_a_later_state_than_the_database_has_is_excused(
    mongo_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a restored machine whose clock is behind. The same difference is a divergence where the time has not gone back."""
    samples: list[tuple[Verifications, Sample]] = []

    async def noted(self: Verifications, sample: Sample, *, lifetime_ms: int) -> None:
        samples.append((self, sample))

    monkeypatch.setattr(Verifications, "_on_probation", noted)
    async with verified_site(mongo_url, prefix, probation_ttl_ms=600_000) as site:
        said = ["later"]

        async def source(_: Request) -> str:
            return said[0]

        site.source = source
        await eventually(lambda: is_hit(site))
        verifications, sample = samples[-1]
        said[0] = "earlier"
        ahead = replace(sample, read_at=sample.read_at + (3_600 << 32))
        assert (await verifications.compared(ahead))[:2] == (Finding.EXCUSED, ("body",))
        assert (await verifications.compared(sample))[:2] == (Finding.DIVERGED, ("body",))
