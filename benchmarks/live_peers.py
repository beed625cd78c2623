"""Live queries beside what people write by hand: a change stream for each client, a query each second, Socket.IO with rooms.

A real mongod; each peer is an application under uvicorn of its own, one after the other in one run. Each client follows one of
a few selectors, so that each write goes to several clients. Figures of each peer: milliseconds from an insert's acknowledgement
until a client has the record, and processor time of application and mongod a write. Where a result is polled, a later record
can overtake an earlier one in one answer. Socket.IO needs one change stream, and gives no first result, no resume and no windows.
Run: python -m benchmarks.live_peers [--clients 200] [--writes 300] [--no-save] (2 minutes)
"""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from typing import Any, Final

import pymongo

from benchmarks import harness
from benchmarks.realtime_fig6 import LONGEST_S, NotingSocket, noting
from benchmarks.setups.live_clients import closed, most_open_files, opened, subscription
from benchmarks.setups.live_grid import Child, Deployment, paced_inserts
from quaestor.testing import servers
from quaestor.testing.servers import Server

DATABASE: Final = "live_peers"
SELECTORS: Final = 20
RATE_HZ: Final = 50
SOCKET_IO_PATH: Final = "/socket.io/?EIO=4&transport=websocket"
PEERS: Final = {
    "live": "benchmarks.setups.live_endpoint:create_live",
    "watch": "benchmarks.setups.live_peers:create_watch",
    "polling": "benchmarks.setups.live_peers:create_polling",
    "socket.io": "benchmarks.setups.live_peers:create_socket_io",
}


async def of_peer(app: str, mongod: Server, writer: Child, clients: int, writes: int) -> dict[str, Any]:
    """Figures of one application."""
    environment = os.environ | {"MONGO_URL": mongod.url, "DATABASE": DATABASE}
    arrived: list[dict[int, float]] = [{} for _ in range(clients)]
    with harness.uvicorn(app, environment=environment) as server:
        sockets: list[NotingSocket] = []
        for number in range(clients):
            k = number % SELECTORS
            first, path, answer = subscription({"k": k}), "/live", b""
            if app.endswith("socket_io"):
                first, path, answer = "40" + json.dumps({"k": k}), SOCKET_IO_PATH, b'40{"sid"'
            sockets += await opened(server.port, [first], kind=noting(arrived[number], answer), path=path)
        ran_s = {"app": harness.processor_s(server.pid), "mongod": harness.processor_s(mongod.pid)}
        acknowledged_s, _ = await writer.ask((SELECTORS, writes, RATE_HZ))
        wanted = [range(number % SELECTORS, writes, SELECTORS) for number in range(clients)]
        async with asyncio.timeout(LONGEST_S):
            while any(len(found) < len(each) for found, each in zip(arrived, wanted, strict=True)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        ran_s["app"] = harness.processor_s(server.pid) - ran_s["app"]
        ran_s["mongod"] = harness.processor_s(mongod.pid) - ran_s["mongod"]
        closed(sockets)
    took_ms = [
        max(0.0, found[record] - acknowledged_s[record]) * 1_000
        for found, each in zip(arrived, wanted, strict=True)
        for record in each
    ]
    return {
        "acknowledged_to_client": harness.summary(took_ms),
        "cpu_ms_a_write": {name: round(value / writes * 1_000, 3) for name, value in ran_s.items()},
    }


async def measured(mongod: Server, clients: int, writes: int) -> dict[str, Any]:
    """Figures of all peers, one after the other."""
    found: dict[str, Any] = {}
    deployment = Deployment(mongo_url=mongod.url, redis_url="", name=DATABASE)
    writer = Child(paced_inserts, deployment)
    try:
        with pymongo.MongoClient[dict[str, Any]](mongod.url) as client:
            for name, app in PEERS.items():
                client.drop_database(DATABASE)
                client[DATABASE].items.create_index([("k", 1), ("n", -1)])
                found[name] = await of_peer(app, mongod, writer, clients, writes)
            client.drop_database(DATABASE)
    finally:
        writer.close()
    return {"clients": clients, "selectors": SELECTORS, "writes": writes, "rate_hz": RATE_HZ, "peers": found}


def main() -> None:
    """Measure and write the result."""
    given = harness.arguments(__doc__, clients=200, writes=300)
    most_open_files()
    with servers.running(partial(servers.mongod_server, journal_ms=10), "mongod") as mongod:
        result = asyncio.run(measured(mongod, given.clients, given.writes))
    harness.report("live_peers", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
