"""Inputs that the cache cannot observe: how soon it notices them by itself, and how many answers were wrong until then.

Every input changes twice a second, at uneven moments, and the history of its values is known. At even moments a memo that lives
for less than their distance would be made anew after each change, and never be old. An answer is *old* if its input had changed
before it was asked for, *wrong* if that was longer ago than the staleness bound.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvloop
from pymongo import AsyncMongoClient

from benchmarks.setups.faults.history import RecordHistory
from benchmarks.setups.faults.world import site_server
from benchmarks.setups.soaked_inputs import app, unseen_app
from benchmarks.setups.soaked_inputs.load import how_it_came, parsed
from benchmarks.setups.soaked_inputs.run import BOUND_MS
from benchmarks.setups.soaked_inputs.wire import Connection
from quaestor.testing.servers import HOST

CHANGES_S = 0.5
"""Between two changes, on average: from no time to twice as long."""
ASKED_S = 0.008
"""Between two requests for one input, of one of its pages each."""
PAGES = 3
AFTERWARDS = 200
"""Answers that are looked at once the route is quarantined."""
MISSING = "missing-read"
"""The reason in `Cache-Status` for an answer that is not stored because an earlier run of the same request has read more."""
GIVE_UP_S = 90.0
LATER_S = 12.0
"""When a route's probation is over for certain."""
INPUTS = ("file", "global", "service", "random", "memo", "worker", "flight")
LATER = "later"
Change = Callable[[int], Awaitable[None]]


@dataclass(slots=True)
class Watched:
    """One input.

    since_s: when it began to change.
    found_s: when an answer first said that its route is quarantined; of a memo, also that a read is missing. From then on
    answers of other runs may be stored, none older than the memo allows.
    as_what: the reason in that answer.
    """

    name: str
    history: RecordHistory = field(default_factory=lambda: RecordHistory(time.time))
    since_s: float = 0.0
    found_s: float | None = None
    as_what: str = ""
    until_found: Counter[str] = field(default_factory=Counter)
    afterwards: Counter[str] = field(default_factory=Counter)
    seen: set[float] = field(default_factory=set)
    quarantined: bool = False

    def judge(self, value: float, asked_s: float, answered_s: float, how: str) -> None:
        """Count one answer. The second one with the same random number is old."""
        if self.found_s is None and (how == "diverged" or (self.name == "memo" and how == MISSING)):
            self.found_s, self.as_what = answered_s, how
        self.quarantined = self.quarantined or how == "diverged"
        counts = self.until_found if self.found_s is None else self.afterwards
        counts["answers"] += 1
        counts["hits"] += how == "hit"
        if self.name == "random":
            counts["old"] += value in self.seen
            counts["wrong"] += value in self.seen
            self.seen.add(value)
            return
        own_s = unseen_app.MEMO_S if self.name == "memo" else 0.0
        for what, allowed_s in (("old", own_s), ("wrong", own_s + BOUND_MS / 1000)):
            spans = self.history.spans(lambda number: number == value, since=asked_s - allowed_s)
            counts[what] += not any(begin <= answered_s for begin, _ in spans)

    def done(self) -> bool:
        """Once enough was looked at. Of a route that is not quarantined other answers may be stored yet, so more is."""
        return self.afterwards["answers"] >= (AFTERWARDS if self.quarantined else AFTERWARDS * 10)

    def row(self) -> dict[str, Any]:
        return {
            "found": self.found_s is not None,
            "as": self.as_what,
            "quarantined": self.quarantined,
            "after_requests": self.until_found["answers"],
            "after_s": None if self.found_s is None else round(self.found_s - self.since_s, 2),
            "hits_until_then": self.until_found["hits"],
            "old_until_then": self.until_found["old"],
            "wrong_until_then": self.until_found["wrong"],
            "asked_afterwards": self.afterwards["answers"],
            "hits_afterwards": self.afterwards["hits"],
            "old_afterwards": self.afterwards["old"],
            "wrong_afterwards": self.afterwards["wrong"],
        }


def unseen(folder: Path, *, mongo_url: str, seed: int, names: tuple[str, ...] = (*INPUTS, LATER)) -> dict[str, Any]:
    """By input: what came of it. seed: of the moments at which they change."""
    return uvloop.run(_unseen(folder, mongo_url, seed, names))


async def _unseen(folder: Path, mongo_url: str, seed: int, names: tuple[str, ...]) -> dict[str, Any]:
    said: list[int] = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The other service: a number for each request."""
        while (await reader.readline()).strip():
            while (await reader.readline()).strip():
                pass
            body = str(said[0]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    database = f"unseen{uuid.uuid4().hex[:8]}"
    files = {"file": folder / "file", LATER: folder / "file.later"}
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongo_url)
    service = await asyncio.start_server(serve, HOST, 0)
    environment = {
        "MONGO_URL": mongo_url, app.DATABASE: database, unseen_app.FILE: str(files["file"]),
        unseen_app.SERVICE: f"http://{HOST}:{service.sockets[0].getsockname()[1]}/",
        "QUAESTOR_STALENESS_BOUND_MS": str(BOUND_MS), "QUAESTOR_TTL_MIN_MS": "600000",
    }  # fmt: skip
    server = site_server(
        folder,
        "unseen",
        module="benchmarks.setups.soaked_inputs.unseen_app",
        factory="create_app",
        environment=environment,
    )
    try:
        for file in files.values():
            file.write_text("0")
        await client[database].records.insert_one({"_id": 1, "said": "a record that nobody changes"})
        await client[database].sources.insert_many([{"_id": name, "n": 0} for name in names])
        await asyncio.to_thread(server.start)
        async with httpx.AsyncClient(base_url=server.url) as http:

            def changing(name: str) -> Change:
                async def written(number: int) -> None:
                    replaced = files[name].with_suffix(".new")
                    replaced.write_text(str(number))
                    os.replace(replaced, files[name])

                async def posted(number: int) -> None:
                    (await http.post("/global", params={"value": number})).raise_for_status()

                async def served(number: int) -> None:
                    said[0] = number

                async def stored(number: int) -> None:
                    await client[database].sources.update_one({"_id": name}, {"$set": {"n": number}})

                return {"file": written, LATER: written, "global": posted, "service": served}.get(name, stored)

            watched = [Watched(name) for name in names]
            async with asyncio.TaskGroup() as group:
                for source in watched:
                    group.create_task(
                        _watch(source, server.port, changing(source.name), random.Random(f"{seed} {source.name}"))
                    )
        return {source.name: source.row() for source in watched}
    finally:
        await asyncio.to_thread(server.stop)
        service.close()
        await client.drop_database(database)
        await client.close()


async def _watch(watched: Watched, port: int, change: Change, rng: random.Random) -> None:
    changes = asyncio.create_task(_changing(watched, change, rng, LATER_S if watched.name == LATER else 0.0))
    watched.since_s = time.time()
    give_up_s = time.monotonic() + GIVE_UP_S

    async def ask(connection: Connection, page: int) -> None:
        asked_s = time.time()
        status, head, body = await connection.ask(f"GET /{watched.name}/{page} HTTP/1.1\r\nhost: site\r\n\r\n".encode())
        if status != 200:
            raise AssertionError(f"{watched.name}: status {status}: {body!r}")
        watched.judge(parsed(body)["value"], asked_s, time.time(), how_it_came(head))

    connections = [Connection(port) for _ in range(PAGES)]
    while not watched.done() and time.monotonic() < give_up_s:
        await asyncio.gather(*(ask(connection, page) for page, connection in enumerate(connections)))
        await asyncio.sleep(ASKED_S * PAGES)
    changes.cancel()
    await asyncio.gather(changes, return_exceptions=True)
    for connection in connections:
        connection.close()


async def _changing(watched: Watched, change: Change, rng: random.Random, after_s: float) -> None:
    if after_s:
        await asyncio.sleep(after_s)
        watched.since_s = time.time()
        watched.until_found.clear()
    while True:
        await asyncio.sleep(rng.uniform(0, 2 * CHANGES_S))
        number = watched.history.begin()
        await change(number)
        watched.history.acknowledge(number, number)
