"""Application of the demo: departure boards, flights, delays and counts on MongoDB, behind one middleware line.

An ordinary FastAPI app, whose handlers contain no code for caching; one line each makes the departure boards and the posts live.
`uvicorn --factory quaestor.demo.flights_app:create_app`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query
from fastapi.responses import HTMLResponse
from pymongo import AsyncMongoClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quaestor import Now, Quaestor, cached
from quaestor.cdn_adapters import VarnishAdapter
from quaestor.demo.reporter import Reporter
from quaestor.middleware import BrowserClient, QuaestorMiddleware
from quaestor.tasks import ended

Document = dict[str, Any]
Limit = Annotated[int, Query(ge=1, le=200)]
Offset = Annotated[int, Query(ge=0, le=5_000)]

STATIC = Path(__file__).parent / "static"
VISIT, BOARD, SEARCH, SOON = (STATIC / f"{name}.html" for name in ("visit", "board", "search", "soon"))
NOT_YET_DEPARTED = ["scheduled", "delayed", "boarding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """Settings of the demo's application.

    varnish_url: URL for purges, None without Varnish.
    live_url: URL for reports, None without a live page.
    """

    mongo_url: str
    database: str
    varnish_url: str | None = None
    live_url: str | None = None

    def to_env(self) -> dict[str, str]:
        """Environment that passes the settings to the workers."""
        return {"DEMO_APP": json.dumps(asdict(self))}

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> AppSettings:
        """Settings from a worker's environment."""
        return cls(**json.loads(environment["DEMO_APP"]))


def create_app() -> FastAPI:
    """Application, made by `uvicorn --factory`; settings come from the environment."""
    settings = AppSettings.from_env(os.environ)
    quaestor = Quaestor.from_env()
    client: AsyncMongoClient[Document] = AsyncMongoClient(
        settings.mongo_url, event_listeners=[quaestor.capture], tz_aware=True
    )
    database = client[settings.database]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        reports = asyncio.create_task(_report(quaestor, settings.live_url))
        yield
        await ended((reports,))
        await client.close()

    app = FastAPI(title="Flights out of New York City, 2013", lifespan=lifespan)
    cdn = [VarnishAdapter(settings.varnish_url)] if settings.varnish_url else []
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor, cdn=cdn, browser_client=BrowserClient())
    app.add_middleware(_NameWorker)

    @app.get("/departures/{origin}")
    @cached(live=True)
    async def departures(origin: str, dest: str | None = None, limit: Limit = 20) -> list[Document]:
        """Departure board: the flights that have not departed yet, in order."""
        query = {"origin": origin, "status": {"$in": NOT_YET_DEPARTED}} | ({"dest": dest} if dest else {})
        return await database.flights.find(query).sort([("scheduled", 1), ("_id", 1)]).limit(limit).to_list()

    @app.get("/next-hour/{origin}")
    @cached(live=True)
    async def next_hour(origin: str, limit: Limit = 50) -> list[Document]:
        """Departures in the next hour by the clock: a flight enters and leaves this list without a write."""
        query = {"origin": origin, "departs": {"$gt": Now(), "$lte": Now() + timedelta(hours=1)}}
        return await database.timetable.find(query).sort([("departs", 1), ("_id", 1)]).limit(limit).to_list()

    @app.get("/flights/{flight_id}")
    async def flight(flight_id: str) -> Document:
        """One flight, with its airline and aircraft."""
        record = await database.flights.find_one({"_id": flight_id})
        if record is None:
            raise HTTPException(404, f"no flight {flight_id}; ids look like 2013-07-03:UA:1545:EWR")
        airline = await database.airlines.find_one({"_id": record["carrier"]})
        plane = await database.planes.find_one({"_id": record["tailnum"]}) if "tailnum" in record else None
        return record | {"airline": airline, "plane": plane}

    @app.get("/delays")
    async def delays(day: str, limit: Limit = 20) -> list[Document]:
        """Most delayed departures of a day."""
        query = {"day": day, "dep_delay": {"$gt": 0}}
        return await database.flights.find(query).sort([("dep_delay", -1), ("_id", 1)]).limit(limit).to_list()

    @app.get("/counts/{origin}")
    async def counts(origin: str, day: str | None = None) -> list[Document]:
        """Number of flights per carrier and destination; of the whole year without a day."""
        match = {"origin": origin} | ({"day": day} if day else {})
        group = {"_id": {"carrier": "$carrier", "dest": "$dest"}, "flights": {"$sum": 1}}
        cursor = await database.flights.aggregate([{"$match": match}, {"$group": group}, {"$sort": {"_id": 1}}])
        return await cursor.to_list()

    @app.get("/counts/{origin}/{status}")
    async def count(origin: str, status: str, day: str) -> Document:
        """Number of flights of a day in this status."""
        query = {"origin": origin, "day": day, "status": status}
        return {"flights": await database.flights.count_documents(query)}

    @app.get("/airports/{code}")
    async def airport(code: str) -> Document:
        record = await database.airports.find_one({"_id": code})
        if record is None:
            raise HTTPException(404, f"no airport {code}; codes look like LAX")
        return record

    @app.get("/airlines")
    async def airlines() -> list[Document]:
        return await database.airlines.find().sort("_id", 1).to_list()

    @app.get("/weather/{origin}")
    async def weather(origin: str, limit: Limit = 24) -> list[Document]:
        """Latest observations at a New York airport."""
        return await database.weather.find({"origin": origin}).sort([("at", -1), ("_id", 1)]).limit(limit).to_list()

    @app.get("/posts")
    @cached(live=True)
    async def posts(
        search: Annotated[str, Query(max_length=60)] = "", offset: Offset = 0, limit: Limit = 10
    ) -> list[Document]:
        """Page of the posts that contain a text, the newest first. A page of it is pulled, or followed by an EventSource."""
        query = {"text": {"$regex": re.escape(search), "$options": "i"}} if search else {}
        return await database.posts.find(query).sort([("at", -1), ("_id", 1)]).skip(offset).limit(limit).to_list()

    @app.get("/visit", response_class=HTMLResponse, include_in_schema=False)
    async def visit() -> str:
        """Page of a visit. The live page loads it without any copies, and again from the browser's copies."""
        return VISIT.read_text(encoding="utf-8")

    @app.get("/board", response_class=HTMLResponse, include_in_schema=False)
    async def board() -> str:
        """Page of a departure board that follows its own GET."""
        return BOARD.read_text(encoding="utf-8")

    @app.get("/soon", response_class=HTMLResponse, include_in_schema=False)
    async def soon() -> str:
        """Page of the departures in the next hour, which change by the clock."""
        return SOON.read_text(encoding="utf-8")

    @app.get("/search", response_class=HTMLResponse, include_in_schema=False)
    async def search() -> str:
        """Page that searches the stream of posts, by pull or by push."""
        return SEARCH.read_text(encoding="utf-8")

    return app


async def _report(quaestor: Quaestor, live_url: str | None) -> None:
    if live_url is None:
        return
    reporter = Reporter(quaestor.telemetry, live_url)
    quaestor.on_invalidated(reporter.observe)
    await reporter.run()


class _NameWorker:
    """Middleware that names the answering worker, outside the cache, so that the demo's script can ask each of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._header = (b"x-worker", str(os.getpid()).encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), self._header]
            await send(message)

        await self._app(scope, receive, send_named if scope["type"] == "http" else send)
