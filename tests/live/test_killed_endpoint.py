"""Death of the process that serves the sockets: alone with an embedded grid, or as one of two with Redis."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import ExitStack
from typing import Any

import pymongo
import pytest

from benchmarks.harness import uvicorn
from quaestor.client.live.live_client import LiveClient
from quaestor.testing.servers import free_port
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
