"""Death of the process that serves the sockets: alone with an embedded grid, or as one of two with Redis."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pymongo
import pytest
from websockets.asyncio.client import connect

from benchmarks.harness import uvicorn
from benchmarks.setups.live_grid import Deployment, running_grid
from quaestor.client.live.live_client import LiveClient
from quaestor.client.live.rows import LiveRows
from quaestor.testing.servers import free_port
from tests.live.socket_site import Client, Json
from tests.live.test_live_client import Followers, write
from tests.support import eventually

pytestmark = pytest.mark.anyio
APP = "benchmarks.setups.live_endpoint:create_live"


async def read_on(followers: Followers, items: Any, seed: int) -> None:
    """Writes, and then the streams show what the database has."""
    chance = random.Random(seed)
    for _ in range(30):
        await asyncio.to_thread(write, items, chance)
    await eventually(lambda: followers.agree(items), within_s=60)
    assert not any(task.done() for task in followers.tasks)


@pytest.mark.parametrize("shared", [False, True], ids=["embedded", "two-processes"])
async def test_clients_come_back_to_a_process_that_was_killed(
    mongo_url: str, redis_url: str, prefix: str, *, shared: bool
) -> None:
    """kill -9 in the middle of writes: after the next process has started, results and events lead to the truth again."""
    environment = os.environ | {"MONGO_URL": mongo_url, "DATABASE": prefix, "QUAESTOR_DEPLOYMENT": prefix}
    environment |= {"REDIS_URL": redis_url} if shared else {}
    port = free_port()
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client, ExitStack() as beside:
        if shared:
            beside.enter_context(uvicorn(APP, environment=environment, path="/live.js"))
        items = client[prefix].items
        try:
            with uvicorn(APP, environment=environment, path="/live.js", port=port) as first:
                async with LiveClient(f"ws://127.0.0.1:{port}/live", ping_s=1.0) as live:
                    followers = await Followers.of(live)
                    await read_on(followers, items, 1)
                    assert first.process is not None
                    os.kill(first.process.pid, signal.SIGKILL)
                    first.process.wait()
                    for number in range(10):
                        items.insert_one({"_id": 100 + number, "n": number, "tag": "a"})
                    with uvicorn(APP, environment=environment, path="/live.js", port=port):
                        await read_on(followers, items, 2)
                        # One process alone has lost the events in between, so each stream reports a gap. Beside another
                        # process the pipeline of results may have them, and they are read back.
                        assert followers.gaps > 0 or shared
                        for task in followers.tasks:
                            task.cancel()
        finally:
            client.drop_database(prefix)


WINDOW = {"query": {"n": {"$gte": 0}}, "sort": {"n": -1}, "limit": 3}
STILL = {"query": {"n": -1}}


async def resumed(port: int, window_token: str, still_token: str, rows: LiveRows) -> tuple[str, str]:
    """Come back with two tokens; apply the missed events. Return the types of the first answers."""
    async with connect(f"ws://127.0.0.1:{port}/live") as connection:
        client = Client(connection)
        still = await client.subscribe("still", **STILL, offset_token=still_token)
        assert still.get("missed", 0) == 0
        if still["type"] == "refreshed":
            assert (await client.hear())["type"] == "result"
        window = await client.subscribe("window", **WINDOW, offset_token=window_token)
        for _ in range(window.get("missed", 0)):
            rows.apply(await client.hear())
        return window["type"], still["type"]


def queries_since(database: pymongo.database.Database[Json]) -> int:
    """Number of finds and aggregates on the followed collection since the profiler began."""
    reads = [{"op": "query"}, {"op": "command", "command.aggregate": "items"}]
    return database["system.profile"].count_documents({"$or": reads})


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_clients_of_a_restarted_process_receive_what_they_missed_without_a_read(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path, ending: str
) -> None:
    """The grid outlasts the process, so tokens stay good. After the grid's own restart a token is answered with a gap."""
    deployment = Deployment(mongo_url=mongo_url, redis_url=redis_url, name=prefix)
    port, rows = free_port(), LiveRows()
    app: Any = {"environment": deployment.environment, "path": "/live.js", "port": port}
    with pymongo.MongoClient[Json](mongo_url) as client:
        database = client[prefix]
        database.items.insert_many([{"_id": number, "n": number} for number in range(4)])
        try:
            with running_grid(tmp_path / "grid", deployment):
                with uvicorn(APP, **app) as first:
                    async with connect(f"ws://127.0.0.1:{port}/live") as connection:
                        before = Client(connection)
                        window = await before.subscribe("window", **WINDOW)
                        still = await before.subscribe("still", **STILL)
                        rows.replace(window["data"])
                        await asyncio.to_thread(getattr(first, ending))
                database.items.update_one({"_id": 0}, {"$set": {"n": 9}})
                database.items.delete_one({"_id": 2})
                database.command("profile", 2, filter={"ns": f"{prefix}.items"})
                tokens = window["offset_token"], still["offset_token"]
                with uvicorn(APP, **app) as second:
                    assert await resumed(port, *tokens, rows) == ("resumed", "resumed")
                    assert [row["_id"] for row in rows.records()] == [0, 3, 1]
                    assert queries_since(database) == 0
                    await asyncio.to_thread(getattr(second, ending))
            with running_grid(tmp_path / "next", deployment), uvicorn(APP, **app):
                assert await resumed(port, *tokens, LiveRows()) == ("refreshed", "refreshed")
        finally:
            database.command("profile", 0)
            client.drop_database(prefix)
