"""An app whose answers depend on what no cache can see: each page reads one record, and something besides."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks.setups.soaked_inputs.app import DATABASE
from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App

FILE = "UNSEEN_FILE"
SERVICE = "UNSEEN_SERVICE"
MEMO_S = 0.3
"""How long the app's own memo keeps what it has read: so much older its answers may be by themselves."""


def create_app() -> App:
    """Settings come from the environment; MONGO_URL and SOAK_DATABASE say where the records are."""
    quaestor = Quaestor.from_env()
    made: dict[str, Any] = {"global": 0}
    questions: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()
    memo: list[Any] = [0, 0.0]
    flights: dict[str, asyncio.Task[int]] = {}

    async def source(name: str) -> int:
        """Read a record's value outside of the cache's view."""
        source = await made["database"].sources.find_one({"_id": name})
        return int(source["n"])

    async def work() -> None:
        while True:
            answer = await questions.get()
            answer.set_result(await source("worker"))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            os.environ["MONGO_URL"], event_listeners=[quaestor.capture]
        )
        made["database"] = client[os.environ[DATABASE]]
        async with httpx.AsyncClient() as made["service"]:
            worker = asyncio.create_task(work())
            yield
            worker.cancel()
        await client.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    async def page(value: float) -> dict[str, Any]:
        return {"record": await made["database"].records.find_one({"_id": 1}), "value": value}

    @app.get("/health")
    async def health() -> int:
        return os.getpid()

    @app.post("/global")
    async def say(value: int) -> None:
        made["global"] = value

    @app.get("/file/{n}")
    async def of_a_file(n: int) -> Any:
        return await page(int(Path(os.environ[FILE]).read_text()))  # noqa: ASYNC240

    @app.get("/global/{n}")
    async def of_a_global(n: int) -> Any:
        return await page(made["global"])

    @app.get("/service/{n}")
    async def of_another_service(n: int) -> Any:
        return await page(int((await made["service"].get(os.environ[SERVICE])).text))

    @app.get("/random/{n}")
    async def of_chance(n: int) -> Any:
        return await page(random.random())

    @app.get("/memo/{n}")
    async def of_a_memo(n: int) -> Any:
        now_s = time.monotonic()
        if memo[1] < now_s - MEMO_S:
            memo[:] = [await source("memo"), now_s]
        return await page(memo[0])

    @app.get("/worker/{n}")
    async def of_a_worker_begun_earlier(n: int) -> Any:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        questions.put_nowait(answer)
        return await page(await answer)

    @app.get("/flight/{n}")
    async def of_its_own_single_flight(n: int) -> Any:
        """A request that comes during another request's read gets the other's result."""
        flight = flights.get("flight")
        if flight is None:
            flight = flights["flight"] = asyncio.create_task(source("flight"))
            flight.add_done_callback(lambda _: flights.pop("flight"))
        return await page(await flight)

    @app.get("/later/{n}")
    async def of_a_file_that_changes_later(n: int) -> Any:
        return await page(int(Path(os.environ[FILE] + ".later").read_text()))  # noqa: ASYNC240

    return app
