"""Applications for the benchmarks of live queries, and a bare endpoint that sends a text to all its sockets."""

from __future__ import annotations

import gc
import os
import time
from typing import Any

from fastapi import FastAPI
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from quaestor import Access, LiveQueries, Quaestor, QuaestorMiddleware, SocketLimits

LIMITS = SocketLimits(connections=20_000, connections_an_address=20_000)


def create_live() -> FastAPI:
    """An application with live queries of DATABASE at MONGO_URL."""
    quaestor = Quaestor.from_env(verification=False)
    client = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    database = client[os.environ["DATABASE"]]
    app.include_router(LiveQueries(database, quaestor=quaestor, access=Access.public_read(), limits=LIMITS))
    _show_full_collections(app)
    return app


def _show_full_collections(app: FastAPI) -> None:
    """Show at /collections how long each full collection of the garbage collector has stopped the process so far, in seconds."""
    begun_s = 0.0
    took_s: list[float] = []

    def note(phase: str, collection: dict[str, Any]) -> None:
        nonlocal begun_s
        if phase == "start":
            begun_s = time.perf_counter()
        elif collection["generation"] == 2:
            took_s.append(time.perf_counter() - begun_s)

    gc.callbacks.append(note)

    @app.get("/collections")
    async def collections() -> JSONResponse:
        return JSONResponse(took_s, headers={"cache-control": "no-store"})


def create_bare() -> Starlette:
    """An application that sends what is posted to all sockets: by hand, without a database."""
    sockets: set[WebSocket] = set()

    async def live(socket: WebSocket) -> None:
        await socket.accept()
        sockets.add(socket)
        try:
            while True:
                await socket.receive_text()
                await socket.send_text('{"type":"result"}')
        except WebSocketDisconnect:
            sockets.discard(socket)

    async def publish(request: Request) -> PlainTextResponse:
        text = (await request.body()).decode()
        for socket in list(sockets):
            await socket.send_text(text)
        return PlainTextResponse("sent")

    return Starlette(routes=[WebSocketRoute("/live", live), Route("/publish", publish, methods=["POST"])])


def create_counted() -> FastAPI:
    """The same, with the number of long polls so far at /polls."""
    app = create_live()
    asked = 0

    class Counting:
        """Middleware that counts long polls."""

        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal asked
            asked += scope["type"] == "http" and b"live=true" in scope["query_string"]
            await self._app(scope, receive, send)

    @app.get("/polls")
    async def polls() -> PlainTextResponse:
        return PlainTextResponse(str(asked), headers={"cache-control": "no-store"})

    app.add_middleware(Counting)
    return app
