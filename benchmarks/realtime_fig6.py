"""Latency of live queries through a socket beside the bare grid, against the number of queries and the write rate.

After figure 6 of Wingerath's thesis (section 5.7): the price of the app server between the grid and its clients. A real mongod,
Valkey, and `quaestor grid` as processes. The bare side is a process that follows the same queries without a socket. The other
side is an application under uvicorn, with one socket for each query. Both sides take turns at each point. Latency counts from
the acknowledgement of an insert until its event is there. Aim: the median through a socket is at most 2 ms above the bare one.
Run: python -m benchmarks.realtime_fig6 [--queries 100,1000,3000] [--rates 100,300,1000] [--no-save] (6 minutes)
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pymongo

from benchmarks import harness
from benchmarks.setups.live_clients import RawSocket, closed, most_open_files, opened, subscription
from benchmarks.setups.live_grid import Child, Deployment, follower, paced_inserts, running_databases, running_grid

DEPLOYMENT: Final = "realtime_fig6"
FIXED_QUERIES: Final = 1_000
FIXED_HZ: Final = 300
WRITES: Final = 1_000
AIM_MS: Final = 2.0
LONGEST_S: Final = 60.0
"""How long the events of all writes may take to arrive."""
_NUMBER: Final = re.compile(rb'"n":(\d+)')


class NotingSocket(RawSocket):
    """A socket that notes when the event of each record came."""

    arrived: dict[int, float]

    def data_received(self, data: bytes) -> None:
        """Note the numbers `n` of the records in these bytes."""
        super().data_received(data)
        for match in _NUMBER.finditer(data):
            self.arrived.setdefault(int(match[1]), time.perf_counter())


def noting(arrived: dict[int, float], answer: bytes = b"") -> type[NotingSocket]:
    """Return the class of sockets that note into one dictionary.

    answer: see RawSocket.
    """
    return type("_NotingSocket", (NotingSocket,), {"arrived": arrived, "answer": answer})


async def of_grid(reader: Child, writer: Child, load: tuple[int, int, int]) -> tuple[list[float], float]:
    """Latencies in ms without a socket, and the achieved rate in Hz."""
    queries, writes, _ = load
    await reader.ask(queries)
    acknowledged_s, achieved_hz = await writer.ask(load)
    arrived: dict[int, float] = {}
    async with asyncio.timeout(LONGEST_S):
        while len(arrived) < writes:
            arrived = await reader.ask("arrived")
    await reader.ask(None)
    return _latencies(acknowledged_s, arrived), achieved_hz


async def of_sockets(deployment: Deployment, writer: Child, load: tuple[int, int, int]) -> tuple[list[float], float]:
    """The same with a socket for each query."""
    queries, writes, _ = load
    app = "benchmarks.setups.live_endpoint:create_live"
    arrived: dict[int, float] = {}
    with harness.uvicorn(app, environment=deployment.environment) as server:
        firsts = [subscription({"k": number}) for number in range(queries)]
        sockets = await opened(server.port, firsts, kind=noting(arrived))
        acknowledged_s, achieved_hz = await writer.ask(load)
        async with asyncio.timeout(LONGEST_S):
            while len(arrived) < writes:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        closed(sockets)
    return _latencies(acknowledged_s, arrived), achieved_hz


def _latencies(acknowledged_s: list[float], arrived: dict[int, float]) -> list[float]:
    """An event may arrive before its writer has the acknowledgement: that counts as 0."""
    return [max(0.0, arrived[number] - at_s) * 1_000 for number, at_s in enumerate(acknowledged_s)]


async def point(
    deployment: Deployment, items: Any, children: tuple[Child, Child], load: tuple[int, int, int]
) -> dict[str, Any]:
    """Figures of both sides under one load: queries, writes, rate in Hz."""
    reader, writer = children
    items.delete_many({})
    bare_ms, bare_hz = await of_grid(reader, writer, load)
    items.delete_many({})
    socket_ms, socket_hz = await of_sockets(deployment, writer, load)
    bare, socket = harness.summary(bare_ms), harness.summary(socket_ms)
    found = {
        "queries": load[0],
        "writes_per_s": {"asked": load[2], "grid": round(bare_hz), "socket": round(socket_hz)},
        "grid": bare,
        "socket": socket,
        "above_grid_p50_ms": round(socket["p50_ms"] - bare["p50_ms"], 3),
    }
    print(found, flush=True)
    return found


async def measured(
    mongo_url: str, redis_url: str, folder: Path, *, queries: list[int], rates_hz: list[int], writes: int = WRITES
) -> dict[str, Any]:
    """Both curves: over the number of queries at a fixed rate, and over the rate with a fixed number of queries.

    The smallest of each list is not below 1. Without the fixed values in the lists these are the first ones.
    """
    deployment = Deployment(mongo_url=mongo_url, redis_url=redis_url, name=DEPLOYMENT)
    fixed_hz = FIXED_HZ if FIXED_HZ in rates_hz else rates_hz[0]
    fixed_queries = FIXED_QUERIES if FIXED_QUERIES in queries else queries[0]
    loads = dict.fromkeys([*((count, fixed_hz) for count in queries), *((fixed_queries, hz) for hz in rates_hz)])
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client, ExitStack() as stack:
        client.drop_database(DEPLOYMENT)
        items = client[DEPLOYMENT].items
        items.create_index("k")
        stack.enter_context(running_grid(folder / "grid", deployment))
        children = Child(follower, deployment), Child(paced_inserts, deployment)
        for child in children:
            stack.callback(child.close)
        points = [await point(deployment, items, children, (count, writes, hz)) for count, hz in loads]
        client.drop_database(DEPLOYMENT)
    worst = max(found["above_grid_p50_ms"] for found in points)
    return {"writes": writes, "points": points, "most_above_grid_p50_ms": worst, "aim": {"above_grid_p50_ms": AIM_MS}}


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--queries", default="100,1000,3000")
    parser.add_argument("--rates", default="100,300,1000", help="writes a second")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    most_open_files()
    with running_databases() as (mongo_url, redis_url, folder):
        counts, rates_hz = ([int(text) for text in value.split(",")] for value in (given.queries, given.rates))
        result = asyncio.run(measured(mongo_url, redis_url, folder, queries=counts, rates_hz=rates_hz))
    harness.report("realtime_fig6", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
