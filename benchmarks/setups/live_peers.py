"""Endpoints that people write by hand for live results: a change stream a client, a query each second, a broadcast to a room."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import socketio
from pymongo import AsyncMongoClient
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

POLL_S = 1.0


def _items() -> Any:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], maxPoolSize=0)
    return client[os.environ["DATABASE"]].items


async def _selector(socket: WebSocket) -> dict[str, Any]:
    """The query in the first message of a client, as of a live query."""
    await socket.accept()
    return dict(json.loads(json.loads(await socket.receive_text())["query"]))


async def _until_closed(socket: WebSocket, work: Any) -> None:
    task = asyncio.ensure_future(work)
    try:
        while True:
            await socket.receive_text()
    except WebSocketDisconnect:
        task.cancel()


def create_watch() -> Starlette:
    """A change stream for each client, which sends each matching record."""
    items = _items()

    async def live(socket: WebSocket) -> None:
        conditions = {f"fullDocument.{name}": value for name, value in (await _selector(socket)).items()}

        async def follow() -> None:
            async with await items.watch([{"$match": conditions}], full_document="updateLookup") as stream:
                await socket.send_text('{"type":"result"}')
                async for change in stream:
                    await socket.send_text(json.dumps(change["fullDocument"], default=str, separators=(",", ":")))

        await _until_closed(socket, follow())

    return Starlette(routes=[WebSocketRoute("/live", live)])


def create_polling() -> Starlette:
    """A query each second for each client, whose result is sent if it has changed."""
    items = _items()

    async def live(socket: WebSocket) -> None:
        selector = await _selector(socket)

        async def follow() -> None:
            before = None
            while True:
                found = await items.find(selector).sort("n", -1).limit(100).to_list()
                if found != before:
                    await socket.send_text(json.dumps({"data": found}, default=str, separators=(",", ":")))
                before = found
                await asyncio.sleep(POLL_S)

        await _until_closed(socket, follow())

    return Starlette(routes=[WebSocketRoute("/live", live)])


def create_socket_io() -> Any:
    """One change stream, whose records go to a Socket.IO room for each value of `k`. A client names its room on connecting."""
    server = socketio.AsyncServer(async_mode="asgi", cors_allowed_origins="*")

    is_following = asyncio.Event()

    async def follow() -> None:
        async with await _items().watch(full_document="updateLookup") as stream:
            is_following.set()
            async for change in stream:
                record = change["fullDocument"]
                await server.emit("match", json.loads(json.dumps(record, default=str)), room=f"k{record['k']}")

    tasks: list[asyncio.Task[None]] = []

    @server.event  # type: ignore[untyped-decorator]
    async def connect(sid: str, environ: dict[str, Any], auth: dict[str, Any]) -> None:
        if not tasks:
            tasks.append(asyncio.ensure_future(follow()))
        await is_following.wait()
        await server.enter_room(sid, f"k{auth['k']}")

    return socketio.ASGIApp(server)
