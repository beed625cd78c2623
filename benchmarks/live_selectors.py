"""Many selectors on one hot collection: processor time of mongod with live queries, beside a `watch()` each.

A real mongod. First nobody follows; then an application with live queries under uvicorn, whose sockets follow one selector each;
then as many change streams of a driver in this process, with the same selectors. All see the same paced writes. Each write
belongs to one selector.
Run: python -m benchmarks.live_selectors [--selectors 1000] [--writes 500] [--no-save] (2 minutes)
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import Any, Final

import pymongo
from pymongo import AsyncMongoClient

from benchmarks import harness
from benchmarks.setups.live_clients import closed, most_open_files, opened, subscription
from quaestor.testing import servers
from quaestor.testing.servers import Server

DATABASE: Final = "live_selectors"
RATE_HZ: Final = 50
LONGEST_S: Final = 60.0
"""How long a side may take to receive its last event."""


async def paced(items: Any, selectors: int, writes: int) -> None:
    """Acknowledged writes at a fixed rate, each of another selector."""
    begun_s = time.perf_counter()
    for number in range(writes):
        await asyncio.sleep(max(0.0, begun_s + number / RATE_HZ - time.perf_counter()))
        change = {"$set": {"k": number % selectors}, "$inc": {"n": 1}}
        await asyncio.to_thread(items.update_one, {"_id": number % selectors}, change, upsert=True)


async def of_writes(mongod: Server, items: Any, selectors: int, writes: int) -> float:
    """Processor seconds of mongod for the writes themselves: nobody follows."""
    ran_s = harness.processor_s(mongod.pid)
    await paced(items, selectors, writes)
    return harness.processor_s(mongod.pid) - ran_s


async def of_live(mongod: Server, items: Any, selectors: int, writes: int) -> float:
    """Processor seconds of mongod with a socket for each selector."""
    environment = os.environ | {"MONGO_URL": mongod.url, "DATABASE": DATABASE}
    with harness.uvicorn("benchmarks.setups.live_endpoint:create_live", environment=environment) as server:
        sockets = await opened(server.port, [subscription({"k": number}) for number in range(selectors)])
        begun_s, ran_s = time.perf_counter(), harness.processor_s(mongod.pid)
        await paced(items, selectors, writes)
        written = sockets[: min(selectors, writes)]
        async with asyncio.timeout(LONGEST_S):
            while any(socket.arrived_s < begun_s for socket in written):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        ran_s = harness.processor_s(mongod.pid) - ran_s
        closed(sockets)
    return ran_s


async def of_watches(mongod: Server, items: Any, selectors: int, writes: int) -> float:
    """Processor seconds of mongod with a change stream for each selector."""
    received = 0
    everything = asyncio.Event()

    async def follow(stream: Any) -> None:
        nonlocal received
        async for _ in stream:
            received += 1
            if received == writes:
                everything.set()

    async with AsyncMongoClient[dict[str, Any]](mongod.url, maxPoolSize=0) as client:
        streams = [
            await client[DATABASE].items.watch([{"$match": {"fullDocument.k": number}}], full_document="updateLookup")
            for number in range(selectors)
        ]
        tasks = [asyncio.ensure_future(follow(stream)) for stream in streams]
        ran_s = harness.processor_s(mongod.pid)
        await paced(items, selectors, writes)
        async with asyncio.timeout(LONGEST_S):
            await everything.wait()
        ran_s = harness.processor_s(mongod.pid) - ran_s
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return ran_s


async def measured(mongod: Server, selectors: int, writes: int) -> dict[str, Any]:
    """One side after the other, on the same mongod. The database is empty before each.

    beyond_writes: how many times the processor time of the live side the watches take, both without that of the writes alone;
    None where the live side is not above it.
    """
    ran_s: dict[str, float] = {}
    with pymongo.MongoClient[dict[str, Any]](mongod.url) as client:
        for name, side in (("writes", of_writes), ("live", of_live), ("watch", of_watches)):
            client.drop_database(DATABASE)
            items = client[DATABASE].items
            items.create_index("k")
            ran_s[name] = await side(mongod, items, selectors, writes)
        client.drop_database(DATABASE)
    live_s, watch_s = (ran_s[name] - ran_s["writes"] for name in ("live", "watch"))
    return {
        "selectors": selectors,
        "writes": writes,
        "rate_hz": RATE_HZ,
        "mongod_cpu_ms_a_write": {name: round(value / writes * 1_000, 3) for name, value in ran_s.items()},
        "watch_of_live": round(ran_s["watch"] / ran_s["live"], 1),
        "beyond_writes": round(watch_s / live_s, 1) if live_s > 0 else None,
        "aim": {"watch_of_live": 50},
    }


def main() -> None:
    """Measure and write the result."""
    given = harness.arguments(__doc__, selectors=1_000, writes=500)
    most_open_files()
    with servers.running(partial(servers.mongod_server, journal_ms=10), "mongod") as mongod:
        result = asyncio.run(measured(mongod, given.selectors, given.writes))
    harness.report("live_selectors", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
