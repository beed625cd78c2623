"""The JavaScript client of live queries in Node.js against a real endpoint: its streams end at what the database has."""

from __future__ import annotations

import asyncio
import json
import random
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from benchmarks.setups.clients.node import CLIENT, NODE
from tests.live.socket_site import Site, live_site
from tests.live.test_live_client import write
from tests.support import eventually

pytestmark = pytest.mark.anyio

QUERIES: dict[str, dict[str, Any]] = {
    "all": {},
    "some": {"filter": {"n": {"$lt": 50}}},
    "window": {"sort": [("n", -1)], "limit": 3},
    "page": {"sort": [("tag", 1), ("n", 1)], "skip": 2, "limit": 4},
    "built": {"filter": {"tag": "a"}, "sort": [("n", 1)]},
    "own": {"sort": [("n", 1)]},
}
"""The streams of clients/js/test/live.test.ts."""


class Program:
    """The running program. shown: the newest line of each stream. queries: the streams."""

    def __init__(self, process: Process, queries: dict[str, dict[str, Any]]) -> None:
        self.process = process
        self.queries = queries
        self.shown: dict[str, Any] = {}

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            name, value = json.loads(line)
            self.shown[name] = value

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def agrees(self, items: Any) -> bool:
        """Whether every stream shows what the database has."""
        for name, query in self.queries.items():
            sort = [*query.get("sort", []), ("_id", 1)]
            cursor = (
                items.find(query.get("filter", {})).sort(sort).skip(query.get("skip", 0)).limit(query.get("limit", 0))
            )
            wanted, shown = list(cursor), self.shown.get(name)
            if shown is None or (shown if "sort" in query else sorted(shown, key=lambda row: row["_id"])) != wanted:
                return False
        return "error" not in self.shown


@asynccontextmanager
async def program(
    site: Site, name: str = "live.test.ts", queries: dict[str, dict[str, Any]] = QUERIES
) -> AsyncIterator[Program]:
    """Run the program until the block ends."""
    process = await asyncio.create_subprocess_exec(
        NODE,
        "--no-warnings",
        str(CLIENT / "test" / name),
        site.url,
        "items",
        stdin=PIPE,
        stdout=PIPE,
        limit=2**24,
    )
    running = Program(process, queries)
    reading = asyncio.create_task(running.read())
    try:
        yield running
        running.say("end")
        await asyncio.wait_for(process.wait(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reading
    assert running.shown["end"] == "closed"


async def test_streams_follow_the_database_through_lost_sockets(mongo_url: str, prefix: str) -> None:
    """Results and events of five shapes after random writes; the server drops the sockets in between."""
    chance = random.Random(7)
    with live_site(mongo_url, prefix) as site:
        items = site.database.items
        async with program(site) as running:
            for round_ in range(6):
                for _ in range(20):
                    await asyncio.to_thread(write, items, chance)
                if round_ % 2:
                    site.drop_sockets()
                await eventually(lambda: running.agrees(items))


async def test_list_latest_error_and_abort(mongo_url: str, prefix: str) -> None:
    """A1 to A4: a pull list, the present result at once, an error of the server, and a stream that its caller aborts."""
    with live_site(mongo_url, prefix) as site:
        site.database.items.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": -1}])
        async with program(site) as running:
            await eventually(lambda: "all" in running.shown)
            for line in ("list", "latest", "refused", "abort"):
                running.say(line)
            await eventually(lambda: {"list", "latest", "refused", "abort"} <= running.shown.keys())
            assert running.shown["list"] == [{"_id": 1, "n": 1}]
            assert len(running.shown["latest"]) == 2
            assert running.shown["refused"] == 400
            assert running.shown["abort"] == "complete"


WINDOW: dict[str, Any] = {"sort": [("n", -1)], "limit": 3}
LIBRARIES = dict.fromkeys(["db", "query", "react", "svelte"], WINDOW)
"""The streams of clients/js/test/adapters.test.ts, by the library that shows them."""


def subscriptions(site: Site) -> int:
    return sum(len(socket._subscriptions) for socket in site.live._endpoint._sockets)


@pytest.mark.skipif(
    not (CLIENT / "node_modules" / "@tanstack" / "db").exists(), reason="`make browser-client` installs the libraries"
)
async def test_libraries_show_the_database_and_leave(mongo_url: str, prefix: str) -> None:
    """Collection of TanStack DB, TanStack Query, a hook of React, a store of Svelte.

    Each shows every state to come, also after lost sockets. The last reader of each ends its subscription. A query that is shown
    again follows again. Errors of the server arrive.
    """
    chance = random.Random(3)
    with live_site(mongo_url, prefix) as site:
        items = site.database.items
        async with program(site, "adapters.test.ts", LIBRARIES) as running:
            await eventually(lambda: {"db refused", "query refused"} <= running.shown.keys())
            assert running.shown["db refused"] == running.shown["query refused"] == 400
            for _ in range(4):
                for _ in range(15):
                    await asyncio.to_thread(write, items, chance)
                site.drop_sockets()
                await eventually(lambda: running.agrees(items))
            assert subscriptions(site) == len(LIBRARIES)
            running.say("leave")
            await eventually(lambda: subscriptions(site) == 0)
            running.queries = {"query": WINDOW}
            await asyncio.to_thread(items.insert_one, {"_id": "new", "n": 1_000})
            running.say("return")
            await eventually(lambda: running.agrees(items))
