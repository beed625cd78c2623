"""How late answers of other collections are while a burst of writes goes through one collection.

A real mongod. One record of a small collection is written again and again. Meanwhile nothing else is written, or `update_many`
changes 50,000 records of another collection, or a transaction changes 10,000. The benchmark measures the time from the
acknowledgement of each write to

- its event in a bare change stream of the whole cluster, with the driver and nothing else: the baseline. No reader of ordered
  events is faster;
- the first answer that shows it, of an application with an embedded grid;
- the same of an application that elected itself to run the grid, on a real Valkey.

Both applications are started as a server starts them. The middleware then freezes what they have loaded. Without that, a full
garbage collection of 80 to 300 ms falls among the writes five times a burst.

Meanwhile a page of a third collection, which receives no writes, is read: the share of hits, and how long a hit takes. The three
take turns, burst by burst.
Aim: at most 250 ms.
Run: python -m benchmarks.burst_latency [--rounds 3] [--no-save] (3 minutes)
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

import httpx
import pymongo
from bson.raw_bson import RawBSONDocument
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks import harness
from quaestor import Quaestor
from quaestor.doctor.hosted_app import started
from quaestor.middleware import QuaestorMiddleware
from quaestor.testing import servers

DATABASE: Final = "burst_latency"
RECORDS, IN_TRANSACTION = 50_000, 10_000
SECONDS: Final = 4.0
Client = pymongo.MongoClient[dict[str, Any]]
Shown = Callable[[int], Awaitable[None]]
"""Returns when the small record is shown with this number."""


def _nothing(client: Client) -> None:
    """No burst."""


def _update_many(client: Client) -> None:
    client[DATABASE].big.update_many({}, {"$inc": {"n": 1}})


def _transaction(client: Client) -> None:
    with client.start_session() as session, session.start_transaction():
        client[DATABASE].big.update_many({"_id": {"$lt": IN_TRANSACTION}}, {"$inc": {"n": 1}}, session=session)


BURSTS: Final[dict[str, Callable[[Client], None]]] = {
    "quiet": _nothing,
    "update_many": _update_many,
    "transaction": _transaction,
}


async def _lateness_s(client: Client, burst: Callable[[Client], None], shown: Shown) -> list[float]:
    """How long each acknowledged write was not shown, in seconds."""
    thread = threading.Thread(target=burst, args=(client,))
    late_s, number, begun = [], time.time_ns(), time.perf_counter()
    thread.start()
    while thread.is_alive() or time.perf_counter() - begun < SECONDS:
        number += 1
        await asyncio.to_thread(client[DATABASE].small.update_one, {"_id": 0}, {"$set": {"n": number}})
        acknowledged = time.perf_counter()
        await shown(number)
        late_s.append(time.perf_counter() - acknowledged)
    await asyncio.to_thread(thread.join)
    return late_s


class Bare:
    """A change stream of the whole cluster in a thread, that notes the number which each event of the small record shows."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._number = 0
        self._ended = threading.Event()
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def _follow(self) -> None:
        with (
            pymongo.MongoClient[RawBSONDocument](self._url, document_class=RawBSONDocument) as client,
            client.watch(max_await_time_ms=20) as stream,
        ):
            self._opened.set()
            while not self._ended.is_set():
                event = stream.try_next()
                if event is not None and event["ns"].get("coll") == "small":
                    self._number = event["updateDescription"]["updatedFields"]["n"]

    async def shown(self, number: int) -> None:
        while self._number < number:  # noqa: ASYNC110 (a thread counts)
            await asyncio.sleep(0.002)

    async def late_s(self, client: Client, burst: Callable[[Client], None]) -> list[float]:
        """See the module."""
        self._thread.start()
        await asyncio.to_thread(self._opened.wait)
        try:
            return await _lateness_s(client, burst, self.shown)
        finally:
            self._ended.set()
            await asyncio.to_thread(self._thread.join)


@asynccontextmanager
async def _site(url: str, redis_url: str | None) -> AsyncIterator[httpx.AsyncClient]:
    """An application that answers from its cache, and its client."""
    quaestor, app = Quaestor(mongo_url=url, redis_url=redis_url, verification=False), FastAPI()
    reader: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=[quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/{collection}")
    async def record(collection: str) -> dict[str, Any] | None:
        return await reader[DATABASE][collection].find_one({"_id": 0})

    async with (
        reader,
        started(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site", timeout=60) as http,
    ):
        for path in ("/small", "/still"):
            while "; hit" not in (await http.get(path)).headers.get("cache-status", ""):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield http
    gc.collect()  # of what an ended application leaves; it would fall among the writes of the next one


@dataclass(slots=True)
class StillPage:
    """Answers of a page that nobody writes.

    hits_ms: how long each hit took.
    answers: number of all answers. A backlog of more than the staleness bound ends the hits: then handlers answer.
    """

    hits_ms: list[float] = field(default_factory=list)
    answers: int = 0

    async def read(self, http: httpx.AsyncClient, ended: asyncio.Event) -> None:
        """Read the page until `ended`."""
        while not ended.is_set():
            begun = time.perf_counter()
            answer = await http.get("/still")
            self.answers += 1
            if "; hit" in answer.headers.get("cache-status", ""):
                self.hits_ms.append(1_000 * (time.perf_counter() - begun))
            await asyncio.sleep(0.01)

    def figures(self) -> dict[str, Any]:
        """Return the share of hits, and how long they took."""
        share = round(len(self.hits_ms) / max(1, self.answers), 4)
        return {"share_of_hits": share} | ({"hits": harness.summary(self.hits_ms)} if self.hits_ms else {})


async def _measured(url: str, redis_url: str, rounds: int) -> dict[str, Any]:
    late_ms: dict[str, list[list[float]]] = {}
    still: dict[str, StillPage] = {}

    def note(name: str, late_s: list[float]) -> None:
        late_ms.setdefault(name, []).append([1_000 * late for late in late_s])

    async def in_site(name: str, of: str | None, client: Client, burst: Callable[[Client], None]) -> None:
        async with _site(url, of) as http:

            async def shown(number: int) -> None:
                while (await http.get("/small")).json()["n"] != number:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)

            ended = asyncio.Event()
            reading = asyncio.create_task(still.setdefault(name, StillPage()).read(http, ended))
            note(name, await _lateness_s(client, burst, shown))
            ended.set()
            await reading

    with pymongo.MongoClient[dict[str, Any]](url) as client:
        client[DATABASE].big.insert_many([{"_id": key, "n": 0, "text": "x" * 100} for key in range(RECORDS)])
        client[DATABASE].small.insert_one({"_id": 0, "n": 0})
        client[DATABASE].still.insert_one({"_id": 0})
        for _ in range(rounds):
            for name, burst in BURSTS.items():
                note(f"bare stream, {name}", await Bare(url).late_s(client, burst))
                await in_site(f"embedded, {name}", None, client, burst)
                await in_site(f"elected grid, {name}", redis_url, client, burst)
    return {
        name: {
            "latest_ms": round(median(map(max, runs))),
            "latest_of_each_round_ms": [round(max(run)) for run in runs],
            "late": harness.summary([delay_ms for run in runs for delay_ms in run]),
        }
        | (still[name].figures() if name in still else {})
        for name, runs in late_ms.items()
    }


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    load = [os.getloadavg()[0]]
    with servers.mongo_url() as url, servers.redis_url() as redis_url:
        measured = asyncio.run(_measured(url, redis_url, options.rounds))
    load.append(os.getloadavg()[0])
    result = {
        "load_before_and_after": [round(load_average, 1) for load_average in load],
        "rounds": options.rounds,
        **measured,
    }
    for name, figures in measured.items():
        print(f"{name:28} {figures}")
    if not options.no_save:
        harness.save("burst_latency", result)


if __name__ == "__main__":
    main()
