"""Two app processes' worth of Quaestor on one Redis or a cluster, a 2 x 2 grid, a real mongod; and what happens when parts die.

The cells run in threads here; on Spark they are tested in tests/recovery/test_spark_grid.py. Same code, same pipelines.
"""

from __future__ import annotations

import io
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pybloom_live
import pymongo
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor
from quaestor.clock import system_clock
from quaestor.event_layer import codec, streams
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.resizing.handover import GridHandover
from quaestor.invalidation.grid.resizing.state import GridState, Run, put_state
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Cell, GridShape, Invalidated
from quaestor.observability.telemetry import Telemetry
from quaestor.testing import servers
from tests.support import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

SHAPE = GridShape(query_partitions=2, write_partitions=2)
HEARTBEAT_MS = 100


@dataclass
class Grid:
    """Ingest and the cells, each a thread that can be stopped like a process that died."""

    mongo_url: str
    redis_url: str
    deployment: str
    shape: GridShape = SHAPE
    earlier: tuple[GridShape, ...] = ()
    stops: dict[str, threading.Event] = field(default_factory=dict)
    threads: dict[str, threading.Thread] = field(default_factory=dict)

    @property
    def parts(self) -> list[str]:
        return ["ingest", *(f"{cell.query_partition}x{cell.write_partition}" for cell in self.shape.cells)]

    def start(self, name: str) -> None:
        stop = threading.Event()
        run = self._ingest if name == "ingest" else self._cell
        thread = threading.Thread(target=run, args=(name, stop), name=name, daemon=True)
        self.stops[name], self.threads[name] = stop, thread
        thread.start()

    def stop(self, name: str) -> None:
        self.stops[name].set()
        self.threads[name].join(15)

    def _ingest(self, name: str, stop: threading.Event) -> None:
        layer = event_layer(self.redis_url, self.deployment)
        with pymongo.MongoClient[Any](self.mongo_url, serverSelectionTimeoutMS=2000) as client:
            handover = GridHandover(
                layer, self.shape, self.earlier, deployment=self.deployment, clock=system_clock, telemetry=Telemetry()
            )
            ChangeStreamFollower(
                client,
                layer,
                self.shape,
                LoopContext(deployment=self.deployment, heartbeat_ms=HEARTBEAT_MS),
                handover=handover,
            ).run(stop)
        layer.close()

    def _cell(self, name: str, stop: threading.Event) -> None:
        row, column = map(int, name.split("x"))
        cell = Cell(query_partition=row, write_partition=column)
        layer = event_layer(self.redis_url, self.deployment)
        CellLoop(
            MatchingNode(cell, self.shape, retention_ms=60_000),
            layer,
            cell,
            self.shape,
            LoopContext(deployment=self.deployment, heartbeat_ms=HEARTBEAT_MS, retention_ms=60_000),
        ).run(stop)
        layer.close()


@contextmanager
def grid(
    mongo_url: str, redis_url: str, deployment: str, shape: GridShape = SHAPE, *earlier: GridShape
) -> Iterator[Grid]:
    """A grid that the state of the deployment knows, as it knows each that is run: app processes elect none then."""
    with closing(event_layer(redis_url, deployment)) as layer:
        put_state(layer, deployment, GridState(serving=Run(run="threads", shape=shape)))
    made = Grid(mongo_url, redis_url, deployment, shape, earlier)
    for name in made.parts:
        made.start(name)
    try:
        yield made
    finally:
        for stop in made.stops.values():
            stop.set()
        for thread in made.threads.values():
            thread.join(15)


class Worker:
    """One app process: an app with ten pages, its Quaestor, a client."""

    def __init__(self, mongo_url: str, redis_url: str, deployment: str, staleness_bound_ms: int) -> None:
        self.quaestor = Quaestor(
            redis_url=redis_url, deployment=deployment, heartbeat_ms=HEARTBEAT_MS, client_ttl="estimated", ttl_min_ms=600_000,
            verification=False, trust_new_sketch=True, elect_grid=False,
            # A cell that is dead is not waited for longer than it takes to be found out.
            staleness_bound_ms=staleness_bound_ms, activation_deadline_ms=staleness_bound_ms,
        )  # fmt: skip
        self.app = FastAPI()
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture], serverSelectionTimeoutMS=int(1_000 * PATIENCE_S)
        )
        self.app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)
        self.runs = 0

        @self.app.get("/pages/{key}")
        async def page(key: int) -> dict[str, Any] | None:
            self.runs += 1
            return await self.client[deployment].pages.find_one({"_id": key})

        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://site")

    async def get(self, key: int) -> tuple[Any, str]:
        response = await self.http.get(f"/pages/{key}")
        assert response.status_code == 200, response.text
        status = response.headers.get("cache-status", "")
        return response.json(), "hit" if "; hit" in status else "stored" if "stored" in status else status

    async def is_hit(self, key: int) -> bool:
        return (await self.get(key))[1] == "hit"

    async def shows(self, key: int, n: int) -> bool:
        return bool((await self.get(key))[0]["n"] == n)

    async def close(self) -> None:
        await self.http.aclose()
        await self.quaestor.stop()
        await self.client.close()


@asynccontextmanager
async def workers(
    mongo_url: str, redis_url: str, deployment: str, count: int = 2, *, staleness_bound_ms: int = 1_000
) -> AsyncIterator[list[Worker]]:
    made = [Worker(mongo_url, redis_url, deployment, staleness_bound_ms) for _ in range(count)]
    try:
        yield made
    finally:
        for worker in made:
            await worker.close()


@contextmanager
def pages(mongo_url: str, database: str) -> Iterator[pymongo.collection.Collection[dict[str, Any]]]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as other:
        other[database].pages.insert_many([{"_id": key, "n": 0} for key in range(10)])
        yield other[database].pages


def touch(collection: pymongo.collection.Collection[dict[str, Any]], key: int, n: int) -> None:
    collection.update_one({"_id": key}, {"$set": {"n": n}})


@pytest.mark.usefixtures("patient_redis")
async def test_an_eviction_reaches_both_processes_and_others_stay(mongo_url: str, shared_url: str, prefix: str) -> None:
    with pages(mongo_url, prefix) as collection, grid(mongo_url, shared_url, prefix):
        # A bound that a busy machine does not exceed: every miss here is caused by a write.
        async with workers(mongo_url, shared_url, prefix, staleness_bound_ms=20_000) as (first, second):
            for key in range(10):
                await eventually(lambda key=key: first.is_hit(key))  # type: ignore[misc]
            await eventually(lambda: second.is_hit(0))  # it has started
            clock = second.quaestor.read_path.clock
            await eventually(lambda: second.quaestor.registry.caught_up(now_ms=clock()))  # and knows the whole grid
            runs = second.runs
            for key in range(10):
                assert await second.is_hit(key)
            assert second.runs == runs, "the second process answers from what the first has stored"
            touch(collection, 3, 1)
            await eventually(lambda: first.shows(3, 1))
            await eventually(lambda: second.shows(3, 1))
            for key in set(range(10)) - {3}:
                assert await first.is_hit(key)
                assert await second.is_hit(key)


async def test_the_sketch_holds_a_changed_resource_while_copies_may_live(
    mongo_url: str, shared_url: str, prefix: str
) -> None:
    with pages(mongo_url, prefix) as collection, grid(mongo_url, shared_url, prefix):
        async with workers(mongo_url, shared_url, prefix, 1) as (process,):
            await eventually(lambda: process.is_hit(4))
            await eventually(lambda: process.is_hit(5))

            async def contains(resource: str) -> bool:
                body = await process.quaestor.sketch.snapshot(now_ms=process.quaestor.read_path.clock())
                return resource in pybloom_live.BloomFilter.fromfile(io.BytesIO(body))

            assert not await contains("/pages/4")
            touch(collection, 4, 1)
            await eventually(lambda: contains("/pages/4"))
            assert not await contains("/pages/5")


@pytest.mark.parametrize("part", ["0x0", "0x1", "1x0", "1x1", "ingest"])
async def test_nothing_that_a_dead_part_guards_is_served_and_its_successor_misses_nothing(
    mongo_url: str, redis_url: str, prefix: str, part: str
) -> None:
    with pages(mongo_url, prefix) as collection, grid(mongo_url, redis_url, prefix) as running:
        async with workers(mongo_url, redis_url, prefix) as (first, second):
            for key in range(10):
                await eventually(lambda key=key: first.is_hit(key))  # type: ignore[misc]
                await eventually(lambda key=key: second.is_hit(key))  # type: ignore[misc]
            running.stop(part)
            for key in range(10):
                touch(collection, key, 1)
            # Within the staleness bound nothing old is served any more, although nobody matches.
            for key in range(10):
                await eventually(lambda key=key: first.shows(key, 1))  # type: ignore[misc]
                await eventually(lambda key=key: second.shows(key, 1))  # type: ignore[misc]
            for key in range(10):
                touch(collection, key, 2)
            # Entries guarded by living processes may be shown a moment longer; entries of dead ones are not shown any more.
            for key in range(10):
                await eventually(lambda key=key: first.shows(key, 2))  # type: ignore[misc]
                await eventually(lambda key=key: second.shows(key, 2))  # type: ignore[misc]
            running.start(part)
            for key in range(10):
                await eventually(lambda key=key: first.is_hit(key))  # type: ignore[misc]
                assert await first.shows(key, 2)
                assert await second.shows(key, 2)


@pytest.mark.parametrize("persistent", [True, False], ids=["with its data", "without its data"])
async def test_redis_dies_and_comes_back(mongo_url: str, tmp_path: Path, prefix: str, persistent: bool) -> None:
    redis = servers.redis_server(tmp_path, persistent=persistent)
    redis.start()
    try:
        with pages(mongo_url, prefix) as collection, grid(mongo_url, redis.url, prefix):
            async with workers(mongo_url, redis.url, prefix) as (first, second):
                for key in range(3):
                    await eventually(lambda key=key: first.is_hit(key))  # type: ignore[misc]
                    await eventually(lambda key=key: second.is_hit(key))  # type: ignore[misc]
                redis.kill()
                touch(collection, 0, 1)
                await eventually(lambda: first.shows(0, 1))
                await eventually(lambda: not first.quaestor.registry.serving(now_ms=first.quaestor.read_path.clock()))
                served, how = await first.get(1)
                assert (served["n"], how != "hit") == (0, True), "answered by the handler"
                redis.start()
                for key in range(3):
                    await eventually(lambda key=key: first.is_hit(key), within_s=40)  # type: ignore[misc]
                    await eventually(lambda key=key: second.is_hit(key), within_s=40)  # type: ignore[misc]
                assert await first.shows(0, 1)
                assert await second.shows(0, 1)
                touch(collection, 2, 5)
                await eventually(lambda: first.shows(2, 5))
                await eventually(lambda: second.shows(2, 5))
    finally:
        redis.stop()


async def test_caching_resumes_after_a_restart_of_mongod(redis_url: str, tmp_path: Path, prefix: str) -> None:
    mongod = servers.mongod_server(tmp_path)
    mongod.start()
    try:
        with pages(mongod.url, prefix) as collection, grid(mongod.url, redis_url, prefix):
            async with workers(mongod.url, redis_url, prefix, 1) as (process,):
                await eventually(lambda: process.is_hit(0))
                mongod.kill()
                mongod.start()
                touch(collection, 0, 1)
                await eventually(lambda: process.shows(0, 1), within_s=40)
                await eventually(lambda: process.is_hit(0), within_s=40)
                touch(collection, 0, 2)
                await eventually(lambda: process.shows(0, 2))
    finally:
        mongod.stop()


async def test_without_a_grid_everything_is_answered_and_nothing_cached(
    mongo_url: str, redis_url: str, prefix: str
) -> None:
    with pages(mongo_url, prefix) as collection:
        async with workers(mongo_url, redis_url, prefix, 1) as (process,):
            for n in range(3):
                touch(collection, 0, n)
                served, how = await process.get(0)
                assert served["n"] == n
                assert "not-serving" in how
        with grid(mongo_url, redis_url, prefix):
            async with workers(mongo_url, redis_url, prefix, 1) as (process,):
                await eventually(lambda: process.is_hit(0))


@pytest.mark.parametrize("trimmed", [False, True], ids=["still retained", "trimmed meanwhile"])
async def test_an_entry_that_changed_while_no_process_ran_is_not_served_by_the_next_one(
    mongo_url: str, shared_url: str, prefix: str, trimmed: bool
) -> None:
    """Entries in Redis outlive the processes; the grid invalidates them while no process runs that could evict them."""
    layer = event_layer(shared_url, prefix)
    with pages(mongo_url, prefix) as collection, grid(mongo_url, shared_url, prefix):
        async with workers(mongo_url, shared_url, prefix, 1) as (process,):
            await eventually(lambda: process.is_hit(0))
            await eventually(lambda: layer.get(streams.attended(prefix)) is not None)
        touch(collection, 0, 1)
        if trimmed:
            await eventually(lambda: _invalidated(layer, prefix))
            layer.trim(streams.notifications(prefix), before_ms=system_clock())
        async with workers(mongo_url, shared_url, prefix, 1) as (second,):
            await second.get(1)  # starts it
            await eventually(lambda: second.quaestor.registry.serving(now_ms=second.quaestor.read_path.clock()))
            # The write may be on its way; what it does not end lives for minutes.
            await eventually(lambda: second.shows(0, 1))
            await eventually(lambda: second.is_hit(0))
            assert await second.shows(0, 1)
            assert await dark(second) == trimmed, "what nobody acted on is taken back from every client"
    layer.close()


def _invalidated(layer: RedisPipelines, deployment: str) -> bool:
    entries = layer.read({streams.notifications(deployment): "0"}, count=10_000, block_ms=0)
    return any(isinstance(codec.decode_notification(entry.payload), Invalidated) for entry in entries)


async def dark(worker: Worker) -> bool:
    """Whether the sketch makes clients revalidate everything."""
    body = await worker.quaestor.sketch.snapshot(now_ms=worker.quaestor.read_path.clock())
    return "/never-seen" in pybloom_live.BloomFilter.fromfile(io.BytesIO(body))
