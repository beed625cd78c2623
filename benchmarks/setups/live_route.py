"""Applications for the benchmark of followed GETs: a live route of a database, and a bare stream of events by hand."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from quaestor import Quaestor, QuaestorMiddleware, cached

PATH = "/items"
FOLLOWERS = 20_000


def create_live() -> FastAPI:
    """An application whose route reads DATABASE at MONGO_URL, and can be followed."""
    quaestor = Quaestor.from_env(verification=False, live_followers=FOLLOWERS, live_followers_of_client=FOLLOWERS)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        os.environ["MONGO_URL"], event_listeners=[quaestor.capture]
    )
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get(PATH)
    @cached(live=True)
    async def items() -> list[dict[str, Any]]:
        return await client[os.environ["DATABASE"]].items.find({"tag": "tea"}, {"_id": 0}).to_list()

    return app


def create_bare() -> Starlette:
    """An application that sends each posted text to all streams: one queue a stream, without a database."""
    streams: set[asyncio.Queue[bytes]] = set()

    async def items(request: Request) -> StreamingResponse:
        async def events() -> AsyncIterator[bytes]:
            queue: asyncio.Queue[bytes] = asyncio.Queue()
            streams.add(queue)
            try:
                yield b": opened\n\n"
                while True:
                    yield await queue.get()
            finally:
                streams.discard(queue)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def publish(request: Request) -> PlainTextResponse:
        event = b"data: " + await request.body() + b"\n\n"
        for queue in streams:
            queue.put_nowait(event)
        return PlainTextResponse("sent")

    return Starlette(routes=[Route(PATH, items), Route("/publish", publish, methods=["POST"])])
