"""Clients that come back after the restart of their app server: time until all have an answer, and reads of the database for it.

A real mongod, Valkey, and `quaestor grid`; an application under uvicorn with one socket and one query for each client. The
application is killed (SIGKILL). Some queries change while it is away. Then it starts anew at the same port, and all clients come
back with their `offset_token`. Time counts from the moment at which the new application accepts connections. `queries_read`:
finds and aggregates on the followed collection between the kill and the last answer, by mongod's profiler. Look-ups of written
records by ingest do not count. `missed`: events that follow the answers, the changes from before. Aim: 2,048 clients within
5.8 s, and nothing is read for clients that resume.
Run: python -m benchmarks.live_restart [--clients 2048] [--no-save] (2 minutes)
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pymongo

from benchmarks import harness
from benchmarks.setups.live_clients import RawSocket, closed, most_open_files, opened
from benchmarks.setups.live_grid import Deployment, running_databases, running_grid
from quaestor.testing import servers

DEPLOYMENT: Final = "live_restart"
APP: Final = "benchmarks.setups.live_endpoint:create_live"
CHANGED: Final = 10
"""Every tenth query changes while the application is away."""
AIM_S: Final = 5.8
PROFILE_BYTES: Final = 64 * 1024 * 1024
"""Room for every command; the profiler's own collection keeps about 2,000."""


class KeepingSocket(RawSocket):
    """A socket that keeps its first message."""

    first_message = b""

    def data_received(self, data: bytes) -> None:
        """Keep the bytes of the first message behind its WebSocket header, which ends before the brace."""
        answers = self.opened.done() and not self.answered.done()
        super().data_received(data)
        if answers and self.answered.done():
            self.first_message = data[data.index(b"{") :]


def subscription(number: int, offset_token: str | None) -> str:
    """First message of a client; with the token of its newest message, if it comes back."""
    token = {} if offset_token is None else {"offset_token": offset_token}
    return json.dumps({"type": "subscribe", "id": "1", "bucket": "items", "query": json.dumps({"k": number})} | token)


def answer(socket: RawSocket) -> dict[str, Any]:
    """The first message of a socket. Others may follow in the same bytes."""
    assert isinstance(socket, KeepingSocket)
    message, _ = json.JSONDecoder().raw_decode(socket.first_message.decode("utf-8", "replace"))
    return dict(message)


async def measured(mongo_url: str, redis_url: str, folder: Path, *, clients: int) -> dict[str, Any]:
    """Figures of one restart."""
    deployment = Deployment(mongo_url=mongo_url, redis_url=redis_url, name=DEPLOYMENT)
    port = servers.free_port()
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client, running_grid(folder / "grid", deployment):
        client.drop_database(DEPLOYMENT)
        database = client[DEPLOYMENT]
        database.items.create_index("k")
        database.items.insert_many([{"_id": number, "k": number, "n": 0} for number in range(clients)])
        with harness.uvicorn(APP, environment=deployment.environment, port=port) as server:
            sockets = await opened(port, [subscription(number, None) for number in range(clients)], kind=KeepingSocket)
            tokens = [answer(socket)["offset_token"] for socket in sockets]
            server.kill()
        changed = range(0, clients, CHANGED)
        database.items.update_many({"_id": {"$in": list(changed)}}, {"$inc": {"n": 1}})
        database.create_collection("system.profile", capped=True, size=PROFILE_BYTES)
        database.command("profile", 2, filter={"ns": f"{DEPLOYMENT}.items"})
        with harness.uvicorn(APP, environment=deployment.environment, port=port) as server:
            begun_s, ran_s = time.perf_counter(), harness.processor_s(server.pid)
            firsts = [subscription(number, token) for number, token in enumerate(tokens)]
            sockets = await opened(port, firsts, kind=KeepingSocket)
            took_s = time.perf_counter() - begun_s
            ran_s = harness.processor_s(server.pid) - ran_s
            answers = [answer(socket) for socket in sockets]
            closed(sockets)
        database.command("profile", 0)
        # Ingest looks updated records up by `_id`.
        reads = [
            {"op": "query", "command.filter._id": {"$exists": False}},
            {"op": "command", "command.aggregate": "items"},
        ]
        queries_read = database["system.profile"].count_documents({"$or": reads})
        client.drop_database(DEPLOYMENT)
    return {
        "clients": clients,
        "changed": len(changed),
        "back_s": round(took_s, 2),
        "cpu_ms_a_client": round(ran_s / clients * 1_000, 2),
        "answers": dict(Counter(message["type"] for message in answers)),
        "missed": sum(message.get("missed", 0) for message in answers),
        "queries_read": queries_read,
        "aim": {"back_s": AIM_S, "queries_read": 0},
    }


def main() -> None:
    """Measure and write the result."""
    given = harness.arguments(__doc__, clients=2_048)
    most_open_files()
    with running_databases() as (mongo_url, redis_url, folder):
        result = asyncio.run(measured(mongo_url, redis_url, folder, clients=given.clients))
    harness.report("live_restart", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
