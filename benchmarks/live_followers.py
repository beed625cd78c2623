"""Followers of one GET: time from a write's acknowledgement to each of them, beside a bare loop of streams.

A real mongod, an application with a live route under uvicorn (httptools, uvloop), and a bare Starlette application with one
queue a stream. Both applications run in turn, in the same run. This process opens the streams; it reads bytes and decodes
nothing. The bare application sends a posted text and reads no database; its time counts from the begin of the POST.
`cpu_us_a_delivery` is processor time of the server for each event of each follower: load on the machine hardly changes it.
Run: python -m benchmarks.live_followers [--followers 1000] [--writes 100] [--no-save] (1 minute)
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable
from typing import Any, Final

import httpx
import pymongo

from benchmarks import harness
from benchmarks.setups.live_clients import Stream, most_open_files, opened_streams
from benchmarks.setups.live_route import PATH
from quaestor.testing import servers

DATABASE: Final = "live_followers"
ROUNDS: Final = 4
APPS: Final = "benchmarks.setups.live_route"
PAUSE_S: Final = 0.15
"""Time between two writes: longer than `live_interval_ms`, which holds back a second answer."""


async def of_live(streams: list[Stream], items: Any, writes: Iterable[int]) -> list[float]:
    """Delays of writes to MongoDB, from the acknowledgement."""
    took: list[float] = []
    for number in writes:
        expected = [stream.event() for stream in streams]
        await asyncio.to_thread(items.update_one, {"_id": 1}, {"$set": {"tag": "tea", "n": number}}, upsert=True)
        acknowledged_s = time.perf_counter()
        await asyncio.gather(*expected)
        took += [max(0.0, stream.arrived_s - acknowledged_s) * 1_000 for stream in streams]
        await asyncio.sleep(PAUSE_S)
    return took


async def of_bare(streams: list[Stream], url: str, writes: Iterable[int]) -> list[float]:
    """Delays of texts that are posted."""
    took: list[float] = []
    async with httpx.AsyncClient(timeout=60) as http:
        for number in writes:
            expected = [stream.event() for stream in streams]
            begun_s = time.perf_counter()
            await http.post(f"{url}/publish", content=json.dumps([{"tag": "tea", "n": number}]))
            await asyncio.gather(*expected)
            took += [max(0.0, stream.arrived_s - begun_s) * 1_000 for stream in streams]
            await asyncio.sleep(PAUSE_S)
    return took


async def measured(mongo_url: str, followers: int, writes: int) -> dict[str, Any]:
    """Both applications in turn, round by round."""
    environment = os.environ | {"MONGO_URL": mongo_url, "DATABASE": DATABASE}
    took: dict[str, list[float]] = {"live": [], "bare": []}
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        client.drop_database(DATABASE)
        items = client[DATABASE].items
        items.create_index("tag")
        with (
            harness.uvicorn(f"{APPS}:create_bare", environment=environment) as bare,
            harness.uvicorn(f"{APPS}:create_live", environment=environment) as live,
        ):
            of_both = {
                name: await opened_streams(server.port, PATH, followers)
                for name, server in (("bare", bare), ("live", live))
            }
            ran_s = {"bare": -harness.processor_s(bare.pid), "live": -harness.processor_s(live.pid)}
            for start in range(0, writes, writes // ROUNDS):
                numbers = range(start, start + writes // ROUNDS)  # no write leaves the record as it is
                took["bare"] += await of_bare(of_both["bare"], bare.url, numbers)
                took["live"] += await of_live(of_both["live"], items, numbers)
            ran_s["bare"] += harness.processor_s(bare.pid)
            ran_s["live"] += harness.processor_s(live.pid)
            for stream in [*of_both["bare"], *of_both["live"]]:
                stream.close()
        client.drop_database(DATABASE)
    live_ms, bare_ms = harness.summary(took["live"]), harness.summary(took["bare"])
    return {
        "followers": followers,
        "writes": writes,
        "http": "httptools",
        "acknowledged_to_follower": live_ms,
        "bare": bare_ms,
        "cpu_us_a_delivery": {name: round(ran_s[name] / len(took[name]) * 1e6, 1) for name in took},
        "p50_of_bare": round(live_ms["p50_ms"] / bare_ms["p50_ms"], 2),
        "aim": {"p50_ms": 4.0},
    }


def main() -> None:
    """Measure and write the result."""
    given = harness.arguments(__doc__, followers=1_000, writes=100)
    most_open_files()
    with servers.mongo_url(journal_ms=10) as url:
        result = asyncio.run(measured(url, given.followers, given.writes))
    harness.report("live_followers", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
