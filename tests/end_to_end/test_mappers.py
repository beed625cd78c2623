"""Handlers that never see the driver: Beanie and MongoEngine. Their reads are captured below them, so they are exact too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import beanie
import httpx
import mongoengine
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


class Maker(beanie.Document):
    name: str

    class Settings:
        name = "makers"


class Plane(beanie.Document):
    tail: str
    seats: int
    maker: beanie.Link[Maker] | None = None

    class Settings:
        name = "planes"


class Airport(mongoengine.Document):  # type: ignore[misc]
    code = mongoengine.StringField(primary_key=True)
    city = mongoengine.StringField()
    runways = mongoengine.IntField()
    meta: ClassVar[dict[str, str]] = {"collection": "airports", "db_alias": "mappers"}


class Site:
    """Requests, and writes as another client would make them."""

    def __init__(self, http: httpx.AsyncClient, database: Any) -> None:
        self.http = http
        self.database = database

    async def warm(self, path: str) -> Any:
        answer: Any = None

        async def hit() -> bool:
            nonlocal answer
            response = await self.http.get(path)
            assert response.status_code == 200, response.text
            answer = response.json()
            return "; hit" in response.headers["cache-status"]

        await eventually(hit)
        return answer

    async def is_hit(self, path: str) -> bool:
        return "; hit" in (await self.http.get(path)).headers["cache-status"]

    async def answers(self, path: str, expected: Any) -> None:
        async def does() -> bool:
            return bool((await self.http.get(path)).json() == expected)

        await eventually(does)


@asynccontextmanager
async def served(app: FastAPI, quaestor: Quaestor, mongo_url: str, database: str) -> AsyncIterator[Site]:
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        try:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:
                yield Site(http, other[database])
        finally:
            await quaestor.stop()
            other.drop_database(database)


# Beanie 2.0, the lowest that is allowed, asks an instance for what pydantic tells of its class.
@pytest.mark.filterwarnings("ignore:Accessing this attribute on the instance:DeprecationWarning")
async def test_beanie_documents_lists_links_counts_and_aggregates_are_exact(mongo_url: str, prefix: str) -> None:
    quaestor, app = Quaestor(**PATIENT), FastAPI()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    await beanie.init_beanie(client[prefix], document_models=[Maker, Plane])
    boeing, airbus = await Maker(name="Boeing").insert(), await Maker(name="Airbus").insert()
    for tail, seats, maker in (("N1", 100, boeing), ("N2", 200, airbus), ("N3", 300, airbus)):
        await Plane(tail=tail, seats=seats, maker=maker).insert()  # type: ignore[arg-type]

    @app.get("/large")
    async def large() -> list[str]:
        return [plane.tail for plane in await Plane.find(Plane.seats >= 200).sort("-seats").limit(5).to_list()]

    @app.get("/plane/{tail}")
    async def plane(tail: str) -> str:
        record = await Plane.find_one(Plane.tail == tail, fetch_links=True)
        assert record is not None
        assert isinstance(record.maker, Maker)
        return f"{record.tail} by {record.maker.name}"

    @app.get("/count")
    async def count() -> int:
        return await Plane.find(Plane.seats < 250).count()

    @app.get("/average")
    async def average() -> float:
        return await Plane.find(Plane.seats > 0).avg("seats") or 0.0

    async with served(app, quaestor, mongo_url, prefix) as site:
        assert await site.warm("/large") == ["N3", "N2"]
        assert await site.warm("/plane/N1") == "N1 by Boeing"
        assert await site.warm("/count") == 2
        assert await site.warm("/average") == 200.0

        site.database.planes.insert_one({"tail": "N4", "seats": 260})
        await site.answers("/large", ["N3", "N4", "N2"])
        await site.answers("/average", 215.0)
        assert await site.is_hit("/count"), "260 seats are not fewer than 250"

        site.database.makers.update_one({"name": "Boeing"}, {"$set": {"name": "Boeing Co."}})
        await site.answers("/plane/N1", "N1 by Boeing Co.")

        record = await Plane.find_one(Plane.tail == "N1")
        assert record is not None
        await record.set({Plane.seats: 400})
        await site.answers("/large", ["N1", "N3", "N4", "N2"])
        await site.answers("/count", 1)
    await client.close()


async def test_mongoengine_in_threads_is_exact(mongo_url: str, prefix: str) -> None:
    quaestor, app = Quaestor(**PATIENT), FastAPI()
    mongoengine.connect(
        prefix, alias="mappers", host=mongo_url, uuidRepresentation="standard", event_listeners=[quaestor.capture]
    )
    try:
        for code, city, runways in (("JFK", "New York", 4), ("LGA", "New York", 2), ("SFO", "San Francisco", 4)):
            Airport(code=code, city=city, runways=runways).save()

        @app.get("/city/{city}")
        def of_city(city: str) -> list[str]:
            return [airport.code for airport in Airport.objects(city=city).order_by("code")]

        @app.get("/airport/{code}")
        def airport(code: str) -> int:
            return int(Airport.objects.get(code=code).runways)

        @app.get("/runways")
        def runways() -> int:
            return int(Airport.objects(runways__gte=4).count())

        async with served(app, quaestor, mongo_url, prefix) as site:
            assert await site.warm("/city/New%20York") == ["JFK", "LGA"]
            assert await site.warm("/airport/SFO") == 4
            assert await site.warm("/runways") == 2

            site.database.airports.insert_one({"_id": "EWR", "city": "New York", "runways": 3})
            await site.answers("/city/New%20York", ["EWR", "JFK", "LGA"])
            assert await site.is_hit("/airport/SFO")
            assert await site.is_hit("/runways"), "three runways are not four"

            Airport.objects(code="SFO").update(set__runways=5)
            await site.answers("/airport/SFO", 5)
    finally:
        mongoengine.disconnect("mappers")
