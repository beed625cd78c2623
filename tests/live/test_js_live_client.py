"""The JavaScript client of live queries in Node.js against a real endpoint: its streams end at what the database has."""

from __future__ import annotations

import asyncio
import json
import random
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from benchmarks.setups.clients.node import CLIENT, NODE
from quaestor.live.websocket.limits import SocketLimits
from quaestor.rest.access import Principal
from tests.live.hostile_proxy import hostile_proxy
from tests.live.one_time_tokens import OneTimeTokens
from tests.live.socket_site import Site, live_site
from tests.live.test_live_client import Failing, redefined_view, write
from tests.support import eventually

pytestmark = pytest.mark.anyio

QUERIES: dict[str, dict[str, Any]] = {
    "all": {},
    "some": {"filter": {"n": {"$lt": 50}}},
    "window": {"sort": [("n", -1)], "limit": 3},
    "page": {"sort": [("tag", 1), ("n", 1)], "skip": 2, "limit": 4},
    "built": {"filter": {"tag": "a"}, "sort": [("n", 1)]},
    "own": {"sort": [("n", 1)]},
    "collated": {"filter": {"tag": "A"}, "collation": {"locale": "en", "strength": 1}, "sort": [("n", 1)]},
    "groups": {"pipeline": [{"$group": {"_id": "$tag", "n": {"$sum": "$n"}}}]},
    "unnamed": {
        "pipeline": [{"$sort": {"n": 1, "_id": 1}}, {"$limit": 5}, {"$project": {"_id": 0, "n": 1}}],
        "sort": [],
    },
}
"""The streams of clients/js/test/live.test.ts."""


def by_id(row: Any) -> str:
    """Key of an order in which the rows of both sides are compared."""
    return json.dumps(row["_id"])


def rows_of(items: Any, query: dict[str, Any]) -> list[Any]:
    """The rows that the database has."""
    if "pipeline" in query:
        rows = list(items.aggregate(query["pipeline"]))
        return rows if "sort" in query else sorted(rows, key=by_id)
    cursor = items.find(query.get("filter", {}), collation=query.get("collation"))
    if "sort" not in query:
        return sorted(cursor, key=by_id)
    cursor = cursor.sort([*query["sort"], ("_id", 1)]).skip(query.get("skip", 0)).limit(query.get("limit", 0))
    return list(cursor)


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
            wanted, shown = rows_of(items, query), self.shown.get(name)
            if shown is None or (shown if "sort" in query else sorted(shown, key=by_id)) != wanted:
                return False
        return "error" not in self.shown


@asynccontextmanager
async def program(
    site: Site,
    name: str = "live.test.ts",
    queries: dict[str, dict[str, Any]] = QUERIES,
    *,
    url: str = "",
    arguments: Sequence[str] = ("items",),
) -> AsyncIterator[Program]:
    """Run the program until the block ends.

    arguments: the collection, and further ones.
    """
    process = await asyncio.create_subprocess_exec(
        NODE,
        "--no-warnings",
        str(CLIENT / "test" / name),
        url or site.url,
        *arguments,
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
    with live_site(mongo_url, prefix, limits=SocketLimits(pipeline_stages=5)) as site:
        items = site.database.items
        async with program(site) as running:
            for round_ in range(6):
                for _ in range(20):
                    await asyncio.to_thread(write, items, chance)
                if round_ % 2:
                    site.drop_sockets()
                await eventually(lambda: running.agrees(items))


async def test_streams_over_http_follow_the_database_through_a_proxy_that_fails(mongo_url: str, prefix: str) -> None:
    """The same streams by chunks and long polls: results and events equal the database, though a fifth of the requests fail."""
    chance = random.Random(11)
    settings = {"live_wait_ms": 1_000, "poll_interval_ms": 20}
    with (
        live_site(mongo_url, prefix, limits=SocketLimits(pipeline_stages=5), settings=settings) as site,
        hostile_proxy(site.http) as (proxy, url),
    ):
        proxy.fails = 0.2
        items = site.database.items
        async with program(site, url=f"{url}/live") as running:
            for _ in range(4):
                for _ in range(20):
                    await asyncio.to_thread(write, items, chance)
                await eventually(lambda: running.agrees(items), within_s=60)


@pytest.mark.parametrize(
    ("stripped", "status", "text"),
    [
        ("*", 502, "answered another request"),
        ("query", 502, "answered another request"),
        ("offset", 400, "`epoch` and `offset`"),
        ("epoch", 400, "`epoch`"),
    ],
)
async def test_a_proxy_that_drops_parameters_is_an_error_and_no_loop(
    mongo_url: str, prefix: str, stripped: str, status: int, text: str
) -> None:
    """The stream asks once more, and ends with an error; at once if the server refuses the shortened request."""
    with live_site(mongo_url, prefix, settings={"live_wait_ms": 300}) as site, hostile_proxy(site.http) as (proxy, url):
        proxy.strips = frozenset({stripped})
        async with program(site, "refused_live.test.ts", url=f"{url}/live") as running:
            await eventually(lambda: "error" in running.shown)
            assert running.shown["error"][0] == status
            assert text in running.shown["error"][1]
            assert proxy.requests <= 8


@pytest.mark.parametrize("transport", ["socket", "http"])
async def test_list_latest_error_and_abort(mongo_url: str, prefix: str, transport: str) -> None:
    """A1 to A4: a pull list, the present result at once, an error of the server, and a stream that its caller aborts."""
    with live_site(mongo_url, prefix) as site:
        site.database.items.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": -1}])
        async with program(site, url=f"{site.http}/live" if transport == "http" else "") as running:
            await eventually(lambda: "all" in running.shown)
            for line in ("list", "latest", "refused", "abort"):
                running.say(line)
            await eventually(lambda: {"list", "latest", "refused", "abort"} <= running.shown.keys())
            assert running.shown["list"] == [{"_id": 1, "n": 1}]
            assert len(running.shown["latest"]) == 2
            assert running.shown["refused"] == 400
            assert running.shown["abort"] == "complete"


async def test_streams_subscribe_again_when_their_view_has_another_definition(mongo_url: str, prefix: str) -> None:
    """The subscriptions end with 503: results go on, and a gap stands in the events."""
    with live_site(mongo_url, prefix) as site, redefined_view(site.database) as (before, redefine, after):
        async with program(site, "again_live.test.ts", arguments=["shown"]) as running:
            shown = running.shown
            await eventually(lambda: shown.get("rows") == before and "events" in shown)
            await asyncio.to_thread(redefine)
            await eventually(lambda: shown["rows"] == after and len(shown["events"]) == 2)
            site.database.items.insert_one({"_id": 3, "n": 8})
            added = {"add": {"_id": 3, "n": 8}}
            await eventually(lambda: shown["events"] == [{"add": before[0]}, {"gap": after}, added])
            await eventually(lambda: shown["rows"] == [*after, {"_id": 3, "n": 8}])
            assert "error" not in shown


async def test_streams_that_the_server_cannot_serve_yet_subscribe_again(mongo_url: str, prefix: str) -> None:
    """503 as the first answer: streams wait. A stream that may reconnect twice fails after three errors, a list after one."""
    who = Failing(status=503, times=9)
    with live_site(mongo_url, prefix, principal=who) as site:
        site.database.items.insert_one({"_id": 1})
        async with program(site, "again_live.test.ts") as running:
            await eventually(lambda: running.shown.get("rows") == [{"_id": 1}] and "events" in running.shown)
            assert running.shown["events"] == [{"add": {"_id": 1}}]
            assert "error" not in running.shown
            assert who.asked == 10
    with live_site(mongo_url, prefix, principal=Failing(status=503)) as site:
        async with program(site, "again_live.test.ts") as running:
            for line in ("list", "twice"):
                running.say(line)
            await eventually(lambda: {"list", "twice"} <= running.shown.keys())
            assert (running.shown["list"], running.shown["twice"]) == (503, 503)
            assert "error" not in running.shown


@pytest.mark.parametrize("status", [401, 404, 429])
async def test_other_errors_end_the_streams(mongo_url: str, prefix: str, status: int) -> None:
    """The server would refuse the subscription again."""
    with live_site(mongo_url, prefix, principal=Failing(status=status)) as site:
        async with program(site, "again_live.test.ts") as running:
            await eventually(lambda: "error" in running.shown)
            assert running.shown["error"][0] == status


async def test_a_token_that_ends_during_a_long_poll_is_replaced(mongo_url: str, prefix: str) -> None:
    """401: the client asks `token()` again, and goes on behind the newest change."""
    who = OneTimeTokens()
    with live_site(mongo_url, prefix, principal=who, settings={"live_wait_ms": 300}) as site:
        async with program(
            site, "again_live.test.ts", url=f"{site.http}/live", arguments=["items", "fresh"]
        ) as running:
            for number in range(3):
                await eventually(lambda number=number: who.refused > number)
                site.database.items.insert_one({"_id": number})
                wanted = [{"_id": place} for place in range(number + 1)]
                await eventually(lambda wanted=wanted: running.shown.get("rows") == wanted)
            assert "error" not in running.shown


@pytest.mark.parametrize(
    ("credentials", "requests"), [("fresh", ["Bearer 0", "Bearer 1"]), ("fixed", ["Bearer fixed"])]
)
async def test_a_refused_token_is_an_error_and_no_loop(
    mongo_url: str, prefix: str, credentials: str, requests: list[str]
) -> None:
    """The second 401 in a row ends the stream. Without a function that could give another token the first one does."""
    asked: list[str] = []

    def who(request: Request) -> Principal:
        asked.append(request.headers["authorization"])
        raise HTTPException(401, "unknown token")

    with live_site(mongo_url, prefix, principal=who) as site:
        async with program(
            site, "again_live.test.ts", url=f"{site.http}/live", arguments=["items", credentials]
        ) as running:
            await eventually(lambda: "error" in running.shown)
            assert running.shown["error"] == [401, "unknown token"]
            assert asked == requests


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
            await eventually(lambda: subscriptions(site) == len(LIBRARIES))  # the last drop may be under way
            running.say("leave")
            await eventually(lambda: subscriptions(site) == 0)
            running.queries = {"query": WINDOW}
            await asyncio.to_thread(items.insert_one, {"_id": "new", "n": 1_000})
            running.say("return")
            await eventually(lambda: running.agrees(items))
