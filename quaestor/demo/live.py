"""Server of the live page: collects events, and sends them to every open page as Server-Sent Events.

The server is a process of its own, apart from the app. From the database's change stream come the writes, and from the app
workers the reports on requests and invalidations. Varnish is asked for its counters. Gentle traffic of its own keeps the numbers
moving.
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from quaestor.clock import system_clock
from quaestor.demo import traffic
from quaestor.demo.activity import Activity, WorkerReport
from quaestor.tasks import ended
from quaestor.testing.served_from import served_from

STATIC = Path(__file__).parent / "static"
TICK_S = 0.25
FLIGHTS_ASKED_FOR = 60
POSTS = 5_000
"""Number of posts that are kept; a new one takes the place of the oldest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """Settings of the live page's server.

    front_url: URL that users visit: Varnish or the app.
    varnish_folder: Varnish's working folder, None without Varnish.
    """

    mongo_url: str
    database: str
    day: str
    app_url: str
    front_url: str
    varnish_folder: str | None
    requests_per_s: float

    def to_env(self) -> dict[str, str]:
        """Environment that passes the settings to the process."""
        return {"DEMO_LIVE": json.dumps(asdict(self))}

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> LiveSettings:
        """Settings from the process's environment."""
        return cls(**json.loads(environment["DEMO_LIVE"]))


def create_app() -> FastAPI:
    """Server of the live page, made by `uvicorn --factory`; settings come from the environment."""
    settings = LiveSettings.from_env(os.environ)
    activity = Activity()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        work = [_watch(activity, settings), _ask_varnish(activity, settings), _send_traffic(settings)]
        tasks = [asyncio.create_task(service) for service in work]
        async with httpx.AsyncClient(base_url=settings.front_url, timeout=5.0) as client:
            app.state.front = client
            yield
        await ended(tasks)

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", response_class=HTMLResponse)
    async def page() -> str:
        return (STATIC / "live.html").read_text(encoding="utf-8").replace("FRONT", html.escape(settings.front_url))

    @app.post("/activity", status_code=204)
    async def take(report: WorkerReport) -> None:
        activity.absorb(report, now_ms=system_clock())

    @app.get("/events")
    async def events() -> StreamingResponse:
        return StreamingResponse(_tell(activity), media_type="text/event-stream", headers={"cache-control": "no-store"})

    @app.get("/totals")
    async def totals() -> dict[str, Any]:
        return activity.snapshot(after=activity.sequence, now_ms=system_clock())

    @app.get("/board/{origin}")
    async def board(origin: str, request: Request) -> JSONResponse:
        """Departure board as an ordinary user of the front receives it, and the cache or app that answered."""
        if origin not in traffic.ORIGINS:
            raise HTTPException(404, f"{origin} is not one of {', '.join(traffic.ORIGINS)}")
        started_s = time.perf_counter()
        try:
            answer = await request.app.state.front.get(f"/departures/{origin}", params={"limit": 14})
            answer.raise_for_status()
        except httpx.HTTPError as error:
            return JSONResponse({"error": str(error)}, status_code=502)
        took_ms = (time.perf_counter() - started_s) * 1000
        return JSONResponse(
            {"flights": answer.json(), "served_from": served_from(answer.headers), "took_ms": round(took_ms, 2)}
        )

    return app


async def _tell(activity: Activity) -> AsyncIterator[str]:
    """Server-Sent Events: first everything, then the news four times a second."""
    sent = 0
    while True:
        snapshot = activity.snapshot(after=sent, now_ms=system_clock())
        sent = activity.sequence
        yield f"data: {json.dumps(snapshot)}\n\n"
        await asyncio.sleep(TICK_S)


async def _watch(activity: Activity, settings: LiveSettings) -> None:
    """Count, name and post every write to the flights; follow the day's clock. Tries again for ever."""
    pipeline = [{"$match": {"ns.coll": {"$in": ["flights", "clock"]}}}]
    async with AsyncMongoClient[dict[str, Any]](settings.mongo_url, tz_aware=True) as client:
        posts, number = client[settings.database].posts, 0
        while True:
            with suppress(PyMongoError):
                async with await client[settings.database].watch(pipeline, full_document="updateLookup") as changes:
                    async for change in changes:
                        post = _take_change(activity, change)
                        if post is not None:
                            number += 1
                            await posts.replace_one({"_id": number % POSTS}, post, upsert=True)
            activity.say("the change stream broke off; trying again", now_ms=system_clock())
            await asyncio.sleep(1.0)


def _take_change(activity: Activity, change: Mapping[str, Any]) -> dict[str, Any] | None:
    """Show a write, and return the post that describes it; None: it is no write to a flight."""
    document = change.get("fullDocument") or {}
    if change["ns"].get("coll") == "clock":
        if "at" in document:
            activity.clock = document["at"].isoformat()
        return None
    text = describe(change["operationType"], change.get("documentKey", {}), document)
    activity.wrote(text, now_ms=system_clock())
    return {"text": text, "at": datetime.now(UTC)}


def describe(operation: str, key: Mapping[str, Any], flight: Mapping[str, Any]) -> str:
    """Description of a write in a few words."""
    if flight.keys() >= {"carrier", "flight", "origin", "dest", "status"}:
        what = f"{flight['carrier']} {flight['flight']} {flight['origin']}–{flight['dest']} {flight['status']}"
        late = flight.get("dep_delay", 0) if flight["status"] == "departed" else 0
        return f"{what}, {late} min late" if late > 0 else what
    return f"{operation} {key.get('_id', '')}".strip()


async def _ask_varnish(activity: Activity, settings: LiveSettings) -> None:
    program = shutil.which("varnishstat")
    if settings.varnish_folder is None or program is None:
        return
    names = ("MAIN.cache_hit", "MAIN.cache_miss", "MAIN.s_pass")
    arguments = ["-1", "-j", "-n", settings.varnish_folder, *(part for name in names for part in ("-f", name))]
    while True:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        output, _ = await process.communicate()
        with suppress(ValueError, KeyError):
            counters = {name: json.loads(output)["counters"][name]["value"] for name in names}
            activity.varnish = {"requests": sum(counters.values()), "hits": counters["MAIN.cache_hit"]}
        await asyncio.sleep(1.0)


async def _send_traffic(settings: LiveSettings) -> None:
    if settings.requests_per_s <= 0:
        return
    async with AsyncMongoClient[dict[str, Any]](settings.mongo_url) as client:
        recorded = client[settings.database].recorded_day.find({}, {"_id": 1}).limit(FLIGHTS_ASKED_FOR)
        flight_ids = [flight["_id"] async for flight in recorded]
    drawn = traffic.choices(traffic.paths(flight_ids, settings.day), random.Random(settings.day))
    urls = [settings.front_url, settings.app_url]
    host = urlsplit(settings.front_url).netloc
    await traffic.send(urls, drawn, host=host, per_second=settings.requests_per_s)
