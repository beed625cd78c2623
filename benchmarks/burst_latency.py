"""How late answers of other collections are while a burst of writes goes through one collection.

A real mongod, an application with an embedded grid. One record of a small collection is written again and again; measured is
the time from the acknowledgement of each write to the first answer that shows it: while nothing else is written, while
`update_many` changes 50,000 records of another collection, and while a transaction changes 10,000. Aim: at most 250 ms.
Run: python -m benchmarks.burst_latency [--rounds 3] [--no-save] (1 minute)
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import httpx
import pymongo
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks import harness
from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.testing import servers

DATABASE: Final = "burst_latency"
RECORDS, IN_TRANSACTION = 50_000, 10_000
SECONDS: Final = 4.0
Client = pymongo.MongoClient[dict[str, Any]]


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


async def _latest_ms(http: httpx.AsyncClient, client: Client, burst: Callable[[Client], None]) -> float:
    """The longest that an acknowledged write was not shown, in milliseconds."""
    thread = threading.Thread(target=burst, args=(client,))
    latest_s, number, begun = 0.0, time.time_ns(), time.perf_counter()
    thread.start()
    while thread.is_alive() or time.perf_counter() - begun < SECONDS:
        number += 1
        await asyncio.to_thread(client[DATABASE].small.update_one, {"_id": 0}, {"$set": {"n": number}})
        acknowledged = time.perf_counter()
        while True:
            if (await http.get("/small")).json()["n"] == number:
                break
            await asyncio.sleep(0.002)
        latest_s = max(latest_s, time.perf_counter() - acknowledged)
    await asyncio.to_thread(thread.join)
    return latest_s * 1_000


async def _measured(url: str, rounds: int) -> dict[str, list[float]]:
    quaestor, app = Quaestor(mongo_url=url, verification=False), FastAPI()
    reader: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=[quaestor.capture])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/small")
    async def small() -> dict[str, Any] | None:
        return await reader[DATABASE].small.find_one({"_id": 0})

    found: dict[str, list[float]] = {name: [] for name in BURSTS}
    transport = httpx.ASGITransport(app)
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        client[DATABASE].big.insert_many([{"_id": key, "n": 0, "text": "x" * 100} for key in range(RECORDS)])
        client[DATABASE].small.insert_one({"_id": 0, "n": 0})
        async with httpx.AsyncClient(transport=transport, base_url="http://site", timeout=60) as http:
            while True:
                if "; hit" in (await http.get("/small")).headers.get("cache-status", ""):
                    break
                await asyncio.sleep(0.05)
            for _ in range(rounds):
                for name, burst in BURSTS.items():
                    await asyncio.sleep(3)
                    found[name].append(await _latest_ms(http, client, burst))
    await quaestor.stop()
    await reader.close()
    return found


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    with servers.mongo_url() as url:
        found = asyncio.run(_measured(url, options.rounds))
    latest = {f"{name}_ms": round(median(rounds)) for name, rounds in found.items()}
    result = {**latest, "rounds": {name: [round(ms) for ms in rounds] for name, rounds in found.items()}}
    print(result)
    if not options.no_save:
        harness.save("burst_latency", result)


if __name__ == "__main__":
    main()
