"""Sockets of live queries beside bare ones: memory of idle sockets, one write to equal subscribers, latency of distinct queries.

A real mongod, an application with an embedded grid under uvicorn, and a bare uvicorn application that sends a text to all its
sockets. Both applications run one after the other, in the same run. This process opens the sockets; it reads bytes and decodes
nothing. Paced writes come from a process of their own; the monotonic clock is the machine's.
Run: python -m benchmarks.live_sockets [--sockets 10000] [--queries 10000] [--rate 1000] [--no-save] (3 minutes)
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import psutil
import pymongo

from benchmarks import harness
from benchmarks.setups.live_clients import RawSocket, closed, most_open_files, opened, subscription
from benchmarks.setups.live_grid import Child, Deployment, paced_inserts
from quaestor.testing import servers
from quaestor.testing.servers import Server

DATABASE: Final = "live_sockets"
FANOUTS: Final = 10
WRITES: Final = 5_000
LONGEST_S: Final = 60.0
"""How long the events of all writes may take to arrive."""


@dataclass(slots=True)
class Figures:
    """Figures of one side. kib_a_socket: growth of the process; to_last_ms: from the write's begin to its last socket;
    ran_s: processor time of the process for all fan-outs."""

    kib_a_socket: float = 0.0
    to_last_ms: list[float] = field(default_factory=list)
    ran_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """Distinct queries under paced writes.

    kib_a_query: growth of the process for each query, its socket included.
    achieved_hz: acknowledged writes a second.
    cpu_us_a_write: processor time of the application, from the change stream to the socket.
    took_ms: from the acknowledgement of each write to its socket.
    collections_s: seconds that each full garbage collection has stopped the application so far.
    collected: number of full collections while the writes went on.
    """

    kib_a_query: float
    achieved_hz: float
    cpu_us_a_write: float
    took_ms: list[float]
    collections_s: list[float]
    collected: int


def _memory(server: Server) -> int:
    return int(psutil.Process(server.pid).memory_info().rss)


async def _all_after(sockets: list[RawSocket], begun_s: float) -> float:
    """Milliseconds until each socket has received something that came after a moment."""
    while any(socket.arrived_s < begun_s for socket in sockets):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return (max(socket.arrived_s for socket in sockets) - begun_s) * 1_000


async def _full_collections(server: Server) -> list[float]:
    """Seconds that each full garbage collection has stopped the application so far."""
    async with httpx.AsyncClient(timeout=60) as http:
        took: list[float] = (await http.get(f"{server.url}/collections")).json()
    return took


async def of_live(server: Server, items: Any, sockets: int) -> Figures:
    """Equal subscribers of one query; each write goes to all of them."""
    figures = Figures()
    warm = await opened(server.port, [subscription({"all": 1})])
    before = _memory(server)
    open_ = await opened(server.port, [subscription({"all": 1})] * sockets)
    figures.kib_a_socket = (_memory(server) - before) / 1024 / sockets
    ran_s = harness.processor_s(server.pid)
    for number in range(FANOUTS):
        begun_s = time.perf_counter()
        await asyncio.to_thread(items.update_one, {"_id": "all"}, {"$set": {"all": 1, "n": number}}, upsert=True)
        figures.to_last_ms.append(await _all_after(open_, begun_s))
    figures.ran_s = harness.processor_s(server.pid) - ran_s
    closed([*warm, *open_])
    return figures


async def of_bare(server: Server, sockets: int) -> Figures:
    """The same text to as many sockets by hand."""
    figures = Figures()
    warm = await opened(server.port, ["{}"])
    before = _memory(server)
    open_ = await opened(server.port, ["{}"] * sockets)
    figures.kib_a_socket = (_memory(server) - before) / 1024 / sockets
    text = json.dumps({"id": "1", "type": "match", "data": {"_id": "all", "all": 1, "n": 0}, "padding": "x" * 200})
    ran_s = harness.processor_s(server.pid)
    async with httpx.AsyncClient(timeout=60) as http:
        for _ in range(FANOUTS):
            begun_s = time.perf_counter()
            await http.post(f"{server.url}/publish", content=text)
            figures.to_last_ms.append(await _all_after(open_, begun_s))
    figures.ran_s = harness.processor_s(server.pid) - ran_s
    closed([*warm, *open_])
    return figures


async def latency(server: Server, mongo_url: str, queries: int, rate_hz: int) -> Paced:
    """Writes at a fixed rate, from another process; each distinct query has a socket and at most one write."""
    before = _memory(server)
    sockets = await opened(server.port, [subscription({"k": number}) for number in range(queries)])
    kib_a_query = (_memory(server) - before) / 1024 / queries
    writes = min(queries, WRITES)
    before_them = len(await _full_collections(server))
    begun_s, ran_s = time.perf_counter(), harness.processor_s(server.pid)
    with closing(Child(paced_inserts, Deployment(mongo_url=mongo_url, redis_url="", name=DATABASE))) as writer:
        acknowledged_s, achieved_hz = await writer.ask((queries, writes, rate_hz))
        async with asyncio.timeout(LONGEST_S):
            await _all_after(sockets[:writes], begun_s)
        ran_s = harness.processor_s(server.pid) - ran_s
    collections_s = await _full_collections(server)
    took = [max(0.0, sockets[k].arrived_s - acknowledged_s[k]) * 1_000 for k in range(writes)]
    closed(sockets)
    return Paced(
        kib_a_query=kib_a_query,
        achieved_hz=achieved_hz,
        cpu_us_a_write=ran_s / writes * 1e6,
        took_ms=took,
        collections_s=collections_s,
        collected=len(collections_s) - before_them,
    )


async def measured(mongo_url: str, sockets: int, queries: int, rate_hz: int) -> dict[str, Any]:
    environment = os.environ | {"MONGO_URL": mongo_url, "DATABASE": DATABASE}
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client.drop_database(DATABASE)
        items = client[DATABASE].items
        items.create_index("k")
        with harness.uvicorn("benchmarks.setups.live_endpoint:create_bare", environment=environment) as server:
            bare = await of_bare(server, sockets)
        with harness.uvicorn("benchmarks.setups.live_endpoint:create_live", environment=environment) as server:
            live = await of_live(server, items, sockets)
            paced = await latency(server, mongo_url, queries, rate_hz)
        client.drop_database(DATABASE)
    ratio = sum(live.to_last_ms) / sum(bare.to_last_ms)
    return {
        "sockets": sockets,
        "queries": queries,
        "kib_a_socket": {"live": round(live.kib_a_socket, 1), "bare": round(bare.kib_a_socket, 1)},
        "memory_of_bare": round(live.kib_a_socket / bare.kib_a_socket, 2),
        "one_write_to_all": {"live": harness.summary(live.to_last_ms), "bare": harness.summary(bare.to_last_ms)},
        "time_of_bare": round(ratio, 2),
        "deliveries_a_second": round(sockets * FANOUTS / (sum(live.to_last_ms) / 1_000)),
        "cpu_us_a_delivery": {
            "live": round(live.ran_s / sockets / FANOUTS * 1e6, 1),
            "bare": round(bare.ran_s / sockets / FANOUTS * 1e6, 1),
        },
        "acknowledged_to_socket": harness.summary(paced.took_ms),
        "writes_a_second": {"asked": rate_hz, "achieved": round(paced.achieved_hz)},
        "full_collections": {
            "during_writes": paced.collected,
            "of_the_application": len(paced.collections_s),
            "longest_s": round(max(paced.collections_s, default=0), 2),
        },
        "cpu_us_a_distinct_write": round(paced.cpu_us_a_write),
        "kib_a_distinct_query_and_socket": round(paced.kib_a_query, 1),
    }


def main() -> None:
    given = harness.arguments(__doc__, sockets=10_000, queries=10_000, rate=1_000)
    most_open_files()
    with servers.mongo_url(journal_ms=10) as url:
        result = asyncio.run(measured(url, given.sockets, given.queries, given.rate))
    harness.report("live_sockets", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
