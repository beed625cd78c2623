"""Live results of writers that do not wait for the journal: promptness and price of `live_journal_flush_ms`, off and on in turn.

One process follows a query; a writer with `w: 1, j: false` changes it. Each round measures both sides, the order alternates.
Figures: milliseconds from the acknowledgement of a write to its event, mongod's share of a core, and the time of a write.
Run: python -m benchmarks.live_journal [--rounds 6] [--writes 100] [--no-save] (2 minutes)
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psutil
import pymongo

from benchmarks import harness
from quaestor import Quaestor
from quaestor.incremental import ResultEvent
from quaestor.model import Operation, Query
from quaestor.testing import servers

DATABASE: Final = "live_journal"
FLUSH_MS: Final = 2
RATE_HZ: Final = 20
_WITHIN_S: Final = 30


@dataclass(slots=True)
class Side:
    """Figures of one side.

    event_ms: from the acknowledgement to the event.
    write_ms: of the writer's call.
    mongod_cores: mongod's share of a core, one for each round.
    """

    event_ms: list[float] = field(default_factory=list)
    write_ms: list[float] = field(default_factory=list)
    mongod_cores: list[float] = field(default_factory=list)


async def one_round(server: servers.Server, side: Side, *, flush_ms: int, writes: int) -> None:
    """Follow a query, and measure each write to it."""
    quaestor = Quaestor(mongo_url=server.url, live_journal_flush_ms=flush_ms)
    await quaestor.start()
    mongod = psutil.Process(server.pid)
    with pymongo.MongoClient[dict[str, Any]](server.url) as client:
        items = client.get_database(DATABASE, write_concern=pymongo.WriteConcern(w=1, j=False)).items
        query = Query(namespace=f"{DATABASE}.items", operation=Operation.FIND, filter={"k": 1})
        async with await quaestor.subscribe(query) as live:
            await anext(live)
            began_s, before = time.perf_counter(), mongod.cpu_times()
            for number in range(writes):
                begun_s = time.perf_counter()
                await asyncio.to_thread(items.update_one, {"_id": 1}, {"$set": {"k": 1, "n": number}}, upsert=True)
                acknowledged_s = time.perf_counter()
                async with asyncio.timeout(_WITHIN_S):
                    while not isinstance(await anext(live), ResultEvent):
                        pass
                side.event_ms.append((time.perf_counter() - acknowledged_s) * 1_000)
                side.write_ms.append((acknowledged_s - begun_s) * 1_000)
                await asyncio.sleep(1 / RATE_HZ)
            after = mongod.cpu_times()
            spent_s = after.user + after.system - before.user - before.system
            side.mongod_cores.append(spent_s / (time.perf_counter() - began_s))
    await quaestor.stop()


async def measured(server: servers.Server, rounds: int, writes: int) -> dict[str, Any]:
    """Figures of both sides, and their ratios."""
    off, on = Side(), Side()
    for number in range(rounds):
        sides = [(off, 0), (on, FLUSH_MS)]
        for side, flush_ms in sides if number % 2 == 0 else reversed(sides):
            await one_round(server, side, flush_ms=flush_ms, writes=writes)
    return {
        "rounds": rounds,
        "flush_ms": FLUSH_MS,
        "off": _figures(off),
        "on": _figures(on),
        "mongod_on_to_off": round(sum(on.mongod_cores) / sum(off.mongod_cores), 2),
        "event_off_to_on": round(sum(off.event_ms) / sum(on.event_ms), 1),
    }


def _figures(side: Side) -> dict[str, Any]:
    cores = [round(share, 3) for share in sorted(side.mongod_cores)]
    return {"event": harness.summary(side.event_ms), "write": harness.summary(side.write_ms), "mongod_cores": cores}


def main() -> None:
    given = harness.arguments(__doc__, rounds=6, writes=100)
    with TemporaryDirectory(prefix="quaestor-journal-") as folder:
        server = servers.mongod_server(Path(folder), journal_ms=100)
        server.start()
        try:
            result = asyncio.run(measured(server, given.rounds, given.writes))
        finally:
            server.stop()
    harness.report("live_journal", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
