"""Update in place beside invalidation: the queries that a hot list makes at its database, and how stale its answers are.

A real mongod, and the REST router behind the middleware in this process. One client reads one list all the time while the
list's members change, move, come and go; rounds are interleaved. Each way of keeping the list sees the same writes at the same
pace; a quarter of the time goes before what is counted. Counted are the reads that mongod was sent, by its own count, those of
the stage that maintains the result among them. An answer is stale by the time between the oldest acknowledged write that it
does not show and the request for it. Aim: at most half of invalidation's queries ("objects"), and answers as fresh.

One collection has post-images, and one has none, as is MongoDB's default. Without post-images, mongod looks up each updated
record for the change stream, whichever way the list is kept. Such look-ups are no commands, and are not counted. During bursts
ingest reads the records itself, which is counted.
Run: python -m benchmarks.update_in_place [--seconds 20] [--reads 200] [--writes 10] [--rounds 3] [--no-save] (8 minutes)
"""

from __future__ import annotations

import argparse
import asyncio
import random
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

import httpx
import pymongo
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks import harness
from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.rest import Access, QuaestorRouter
from quaestor.testing import servers

DATABASE: Final = "update_in_place"
RECORDS, MEMBERS = 400, 100
WAYS: Final = ("objects", "ids", "maintained")
LIST: Final = f'/db/items?sort={{"rank":1}}&limit={MEMBERS}'
READING: Final = ("find", "aggregate", "count", "distinct")


@dataclass(slots=True)
class Writer:
    """Writes at a steady pace, in a thread; each gives a record the next number.

    numbers: when which record's write was acknowledged, and its number.
    """

    url: str
    per_s: float
    seed: int
    numbers: list[tuple[float, int, int]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        dice = random.Random(self.seed)
        with pymongo.MongoClient[dict[str, Any]](self.url) as client:
            items, begun, number = client[DATABASE].items, time.perf_counter(), 0
            while not self.stop.wait(max(0.0, begun + number / self.per_s - time.perf_counter())):
                number += 1
                key = dice.randrange(MEMBERS // 2)
                change: dict[str, Any] = {"number": number}
                if dice.random() < 0.3:  # moves, within the list or out of it
                    change["rank"] = dice.choice([dice.random() * MEMBERS / 2, 10_000.0 + key])
                items.update_one({"_id": key}, {"$set": change})
                self.numbers.append((time.perf_counter(), key, number))


def reads_at(url: str) -> int:
    """Reads that mongod was sent so far."""
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        commands = client.admin.command("serverStatus")["metrics"]["commands"]
    return sum(int(commands.get(command, {}).get("total", 0)) for command in READING)


async def measured(
    url: str, way: str, *, seconds: float, reads_hz: float, writes_hz: float, seed: int
) -> dict[str, Any]:
    quaestor = Quaestor(verification=False)
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=[quaestor.capture])
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    app.include_router(
        QuaestorRouter(client[DATABASE], access=Access.public_read(), quaestor=quaestor, representation=way)
    )
    writer = Writer(url, writes_hz, seed)
    thread = threading.Thread(target=writer.run)
    answers: list[tuple[float, dict[int, int]]] = []
    latencies_ms: list[float] = []
    dice = random.Random(seed)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:

        async def read_for(seconds: float) -> None:
            until_s = time.perf_counter() + seconds
            while time.perf_counter() < until_s:
                await asyncio.sleep(dice.expovariate(reads_hz))
                asked_s = time.perf_counter()
                response = await http.get(LIST)
                latencies_ms.append((time.perf_counter() - asked_s) * 1_000)
                answers.append(
                    (asked_s, {record["_id"]: record.get("number", 0) for record in response.raise_for_status().json()})
                )

        thread.start()
        try:
            await read_for(seconds / 4)  # until it is known, and followed
            warm, written = len(answers), len(writer.numbers)
            before, cpu_s = await asyncio.to_thread(reads_at, url), time.process_time()
            await read_for(seconds)
            cpu_s, queries = time.process_time() - cpu_s, await asyncio.to_thread(reads_at, url) - before
            written = len(writer.numbers) - written
        finally:
            writer.stop.set()
            await asyncio.to_thread(thread.join)
    await quaestor.stop()
    await client.close()
    stale_ms = [1_000 * delay_s for delay_s in staleness_s(answers, writer.numbers)[warm:]]
    del latencies_ms[:warm]
    return {
        "reads": len(stale_ms), "writes": written, "queries": queries, "queries_a_write": round(queries / max(1, written), 3),
        "stale_share": round(sum(delay_ms > 0 for delay_ms in stale_ms) / len(stale_ms), 4),
        "stale_mean_ms": round(sum(stale_ms) / len(stale_ms), 3),
        "stale_p99_ms": round(harness.percentile(stale_ms, 0.99), 1),
        "latency_p50_ms": round(harness.percentile(latencies_ms, 0.5), 2),
        "latency_p99_ms": round(harness.percentile(latencies_ms, 0.99), 2),
        "cpu_s": round(cpu_s, 2),
    }  # fmt: skip


def staleness_s(answers: list[tuple[float, dict[int, int]]], written: list[tuple[float, int, int]]) -> list[float]:
    """Of each answer the time since the oldest write before it that it does not show.

    answers: when each was asked for, ascending, and the number of each record that it lists; of others nothing is known.
    written: when which record's write was acknowledged, ascending, and its number.
    """
    waits, place = [], 0
    pending: list[tuple[float, int, int]] = []
    for asked_s, numbers in answers:
        while place < len(written) and written[place][0] <= asked_s:
            pending.append(written[place])
            place += 1
        pending = [write for write in pending if numbers.get(write[1], write[2]) < write[2]]
        waits.append(asked_s - pending[0][0] if pending else 0.0)
    return waits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--reads", type=float, default=200.0)
    parser.add_argument("--writes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "members": MEMBERS,
        "asked": {"reads_hz": options.reads, "writes_hz": options.writes, "seconds": options.seconds},
        "aim": "maintained_over_objects at most 0.5",
    }
    with ExitStack() as stack:
        url = stack.enter_context(servers.running(servers.mongod_server, "mongod")).url
        for name, images in (("with_images", True), ("without_images", False)):
            result[name] = compared(url, options, images=images)
            print(name, {key: value for key, value in result[name].items() if key != "rounds"}, flush=True)
    if not options.no_save:
        harness.save("update_in_place", result)


def compared(url: str, options: argparse.Namespace, *, images: bool) -> dict[str, Any]:
    """All ways of keeping the list, of a collection with post-images or without."""
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for number in range(options.rounds):
        for way in WAYS:
            with pymongo.MongoClient[dict[str, Any]](url) as client:
                client.drop_database(DATABASE)
                items = client[DATABASE].create_collection("items", changeStreamPreAndPostImages={"enabled": images})
                items.insert_many([{"_id": n, "rank": float(n), "title": f"item {n} " * 10} for n in range(RECORDS)])
            run = measured(
                url, way, seconds=options.seconds, reads_hz=options.reads, writes_hz=options.writes, seed=number
            )
            rounds[way].append(asyncio.run(run))
            print(way, rounds[way][-1], flush=True)

    def mean(way: str, what: str) -> float:
        return round(fmean(round_result[what] for round_result in rounds[way]), 4)

    return {
        "rounds": rounds,
        **{
            what: {way: mean(way, what) for way in WAYS}
            for what in ("queries_a_write", "stale_mean_ms", "stale_p99_ms")
        },
        "maintained_over_objects": round(mean("maintained", "queries_a_write") / mean("objects", "queries_a_write"), 3),
    }


if __name__ == "__main__":
    main()
