"""Revocations as writes: time from the acknowledgement of the write until the reader has the `remove`, or the end.

Two kinds, in turn: a record's own rules no longer allow the reader (the record leaves the result); the reader loses its role
in the database (its subscription ends). Other readers with subscriptions of their own are connected meanwhile. Aim: p99 of at
most 100 ms. Run: python -m benchmarks.live_revocation [--readers 100] [--times 300] [--no-save] (2 minutes)
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import pymongo
from websockets.asyncio.client import ClientConnection, connect

from benchmarks import harness
from quaestor.testing import servers
from quaestor.testing.servers import HOST, Server

DATABASE: Final = "live_revocation"
AIM_MS: Final = 100
_WITHIN_S: Final = 30


def subscription(bucket: str, user: str) -> str:
    """First message of a reader."""
    return json.dumps({"type": "subscribe", "id": bucket, "bucket": bucket, "query": "{}", "token": user})


async def arrived(socket: ClientConnection, kind: str, acknowledged_s: float) -> float:
    """Milliseconds from a moment until a message of this kind arrives; 0 if it was there before."""
    async with asyncio.timeout(_WITHIN_S):
        while True:
            message = json.loads(await socket.recv())
            if kind in (message["type"], message.get("matchType")):
                return max(0.0, time.perf_counter() - acknowledged_s) * 1_000


async def of_records(socket: ClientConnection, items: Any, times: int) -> list[float]:
    """A record is taken away from its reader, and given back."""
    took: list[float] = []
    for _ in range(times):
        await asyncio.to_thread(items.update_one, {"_id": 0}, {"$set": {"_acl.read.allow": ["role:nobody"]}})
        took.append(await arrived(socket, "remove", time.perf_counter()))
        await asyncio.to_thread(items.update_one, {"_id": 0}, {"$set": {"_acl.read.allow": ["role:clerk"]}})
        await arrived(socket, "add", time.perf_counter())
    return took


async def of_roles(socket: ClientConnection, members: Any, times: int) -> list[float]:
    """A reader loses its role, and gets it back."""
    took: list[float] = []
    for _ in range(times):
        await asyncio.to_thread(members.update_one, {"_id": "reader-0"}, {"$set": {"roles": []}})
        took.append(await arrived(socket, "error", time.perf_counter()))
        await asyncio.to_thread(members.update_one, {"_id": "reader-0"}, {"$set": {"roles": ["clerk"]}})
        answer = {"type": "error"}
        while answer["type"] == "error":
            await socket.send(subscription("books", "reader-0"))
            answer = json.loads(await socket.recv())
    return took


async def clients(server: Server, stack: AsyncExitStack, readers: int) -> list[ClientConnection]:
    """Sockets of as many readers, each with both subscriptions."""
    sockets = []
    for number in range(readers):
        socket = await stack.enter_async_context(connect(f"ws://{HOST}:{server.port}/live", compression=None))
        for bucket in ("items", "books"):
            await socket.send(subscription(bucket, f"reader-{number}"))
            assert json.loads(await socket.recv())["type"] == "result"
        sockets.append(socket)
    return sockets


async def measured(mongo_url: str, readers: int, times: int) -> dict[str, Any]:
    """Figures of both kinds."""
    environment = os.environ | {"MONGO_URL": mongo_url, "DATABASE": DATABASE}
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client.drop_database(DATABASE)
        database = client[DATABASE]
        database.members.insert_many([{"_id": f"reader-{number}", "roles": ["clerk"]} for number in range(readers)])
        database.items.insert_one({"_id": 0, "_acl": {"read": {"allow": ["role:clerk"]}}})
        with harness.uvicorn("benchmarks.setups.revocation_endpoint:create", environment=environment) as server:
            async with AsyncExitStack() as stack:
                sockets = await clients(server, stack, readers)
                records = await of_records(sockets[0], database.items, times)
                roles = await of_roles(sockets[0], database.members, times)
        client.drop_database(DATABASE)
    return {
        "readers": readers,
        "record_removed": harness.summary(records),
        "subscription_ended": harness.summary(roles),
        "aim_p99_ms": AIM_MS,
    }


def main() -> None:
    given = harness.arguments(__doc__, readers=100, times=300)
    with servers.mongo_url(journal_ms=10) as url:
        result = asyncio.run(measured(url, given.readers, given.times))
    harness.report("live_revocation", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
