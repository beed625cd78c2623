"""Rechecks of one process count for all that share its entries: what it keeps they keep, and what it leaves undone is dead."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pymongo
import pytest

from quaestor.model import CachedResponse, GridShape
from tests.end_to_end.rechecking_worker import STARTED_WITHIN_S
from tests.end_to_end.test_distributed import grid
from tests.end_to_end.test_rechecking import Gate, Items, Worker, items, worker
from tests.support import DEADLINE_S, eventually, killed_after

__all__ = ["items"]

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient_redis")]

ROOT = Path(__file__).parents[2]
TWO_CELLS = GridShape(query_partitions=1, write_partitions=2)
KEY = "http://site/most"


@asynccontextmanager
async def two_workers(
    mongo_url: str, redis_url: str, prefix: str, **settings_of_the_second: Any
) -> AsyncIterator[tuple[Worker, Worker]]:
    """Of the same answer: the first has made it, the second has it from the shared store."""
    shared = {"redis_url": redis_url, "deployment": prefix, "heartbeat_ms": 100}
    with grid(mongo_url, redis_url, prefix, TWO_CELLS):
        async with (
            worker(mongo_url, prefix, **shared) as first,
            worker(mongo_url, prefix, **shared | settings_of_the_second) as other,
        ):
            await eventually(first.hit)
            await second(other)
            yield first, other


async def second(other: Worker) -> None:
    """Returns when this worker answers from what another has stored, without a run of its own."""
    await other.http.get("/elsewhere")  # it starts
    clock = other.quaestor.read_path.clock
    await eventually(lambda: other.quaestor.registry.caught_up(now_ms=clock()))
    await eventually(other.hit)
    assert other.runs == 0


async def stored(app_process: Worker) -> CachedResponse | None:
    """Return the entry in the shared store."""
    return await app_process.quaestor.parts.storage.store._shared.get(KEY)  # type: ignore[union-attr]


async def read_on(app_process: Worker, items: Items) -> None:
    """Wait until this process has read all notifications of the writes so far."""
    time = items.database.command("ping")["operationTime"]
    version = time.time << 32 | time.inc
    items.database.marks.insert_one({})
    await eventually(lambda: app_process.quaestor.registry.progress.matched > version)


async def test_an_entry_that_its_owner_keeps_stays_everywhere(
    mongo_url: str, redis_url: str, prefix: str, items: Items
) -> None:
    """A kept entry stays in every process and in the shared store; a later write that changes it ends it in all of
    them.
    """
    async with two_workers(mongo_url, redis_url, prefix) as (first, other):
        runs, before = first.runs, await stored(first)
        for kept in (1, 2):
            items.update_one({"_id": 2}, {"$inc": {"price": 0.5}})
            await eventually(lambda kept=kept: first.rechecks("kept") == kept)  # type: ignore[misc]
            await read_on(other, items)
            assert await other.hit()
            assert await first.hit()
        assert (first.runs, other.runs) == (runs, 0)
        assert await stored(first) == before
        items.update_one({"_id": 2}, {"$set": {"price": 700}})
        for each in (other, first):
            await read_on(each, items)
            answer, _ = await each.get()
            assert max(row["most"] for row in answer) == 700


async def test_nobody_serves_it_before_the_owner_has_said_so(
    mongo_url: str, redis_url: str, prefix: str, items: Items
) -> None:
    """A request at another process waits as well, and is a hit then."""
    async with two_workers(mongo_url, redis_url, prefix) as (first, other):
        gate = Gate(first)
        items.update_one({"_id": 2}, {"$inc": {"price": 0.5}})
        await eventually(lambda: gate.asked == 1)
        await read_on(other, items)
        asking = asyncio.create_task(other.get())
        await read_on(other, items)
        assert not asking.done()
        gate.open()
        assert (await asking)[1]
        assert other.runs == 0


async def test_an_entry_taken_over_from_a_late_owner_is_dead_there_too(
    mongo_url: str, redis_url: str, prefix: str, items: Items
) -> None:
    """The other process has waited for long enough, and has evicted it; the verdict that comes then counts for nothing: nobody
    would know what to purge."""
    async with two_workers(mongo_url, redis_url, prefix, recheck_ms=50) as (first, other):
        gate, runs = Gate(first), first.runs
        (held,) = first.quaestor.registry._registrations.shared._entries  # type: ignore[union-attr]
        items.update_one({"_id": 2}, {"$inc": {"price": 0.5}})
        await eventually(lambda: gate.asked == 1)
        await eventually(lambda: other.quaestor.telemetry.invalidations.evicted._value.get() == 1)
        await eventually(lambda: not first.quaestor.registry.held((held,)))
        gate.open()
        await read_on(first, items)
        await first.get()
        assert first.runs == runs + 1


@pytest.fixture
def process(mongo_url: str, redis_url: str, prefix: str, items: Items) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.end_to_end.rechecking_worker", mongo_url, redis_url, prefix]
    with grid(mongo_url, redis_url, prefix, TWO_CELLS):
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        yield started
        started.kill()
        started.communicate(timeout=DEADLINE_S)


def says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    with killed_after(2 * STARTED_WITHIN_S, process):  # the thread that reads would wait on
        for line in iter(process.stdout.readline, ""):
            if line.strip() == word:
                return
    raise AssertionError(f"it ended before it said {word!r}")


async def test_an_entry_that_a_killed_process_was_rechecking_is_dead(
    mongo_url: str, redis_url: str, prefix: str, items: pymongo.collection.Collection[dict[str, Any]], process: Any
) -> None:
    """kill -9 in the middle: nobody serves it meanwhile, and another process evicts it soon."""
    await asyncio.wait_for(asyncio.to_thread(says, process, "stored"), 2 * STARTED_WITHIN_S)
    shared = {"redis_url": redis_url, "deployment": prefix, "heartbeat_ms": 100, "recheck_ms": 100}
    async with worker(mongo_url, prefix, **shared) as other:
        await second(other)
        assert await stored(other) is not None
        items.update_one({"_id": 2}, {"$inc": {"price": 0.5}})
        await asyncio.wait_for(asyncio.to_thread(says, process, "rechecking"), STARTED_WITHIN_S)
        process.kill()
        await read_on(other, items)
        answer, hit = await other.get()
        assert (hit, other.runs) == (False, 1)
        assert max(row["most"] for row in answer if row["_id"] == 2) >= 2
        evicted = other.quaestor.telemetry.invalidations.evicted._value
        await eventually(lambda: evicted.get() >= 1)
        await eventually(other.hit)
