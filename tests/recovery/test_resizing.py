"""Resizing on real servers: a grid in threads, an app that caches and follows queries, a writer that never stops."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import anyio
import anyio.to_thread
import pymongo
import pytest

from quaestor.clock import system_clock
from quaestor.errors import QuaestorError
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.resizing.handover import GridHandover
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import CapturedRead, GridShape, Operation, Query
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.realtime.snapshots import MongoSnapshots
from quaestor.realtime.stage import StageLoop
from quaestor.realtime.subscriptions import Subscriptions
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.oracle.standing_world import Subscriber
from tests.support import PATIENT, Loop, eventually

pytestmark = pytest.mark.anyio

VALUES = 40
UNTOUCHED = range(VALUES // 2, VALUES)
KEYS = 200
SLOWEST_S = 90
"""For what takes a second or two on a machine that has nothing else to do."""
Document = dict[str, Any]


class Threads:
    """A whole grid of one generation, each part with an event layer of its own."""

    def __init__(
        self, redis_url: str, client: pymongo.MongoClient[Document], settings: Settings, shape: GridShape,
        *earlier: GridShape,
    ) -> None:  # fmt: skip
        self.shape = shape
        self._open = ExitStack()
        context = LoopContext(
            deployment=settings.deployment,
            heartbeat_ms=settings.grid.heartbeat_ms,
            retention_ms=settings.grid.retention_ms,
        )

        def layer() -> EventLayer:
            return self._open.enter_context(closing(event_layer(redis_url, settings.deployment)))

        own = layer()
        handover = GridHandover(
            own, shape, earlier, deployment=settings.deployment, clock=system_clock, telemetry=Telemetry()
        )
        self._loops = [Loop(ChangeStreamFollower(client, own, shape, context, handover=handover).run)]
        for cell in shape.cells:
            node = MatchingNode(cell, shape, retention_ms=settings.grid.retention_ms)
            loop = CellLoop(node, layer(), cell, shape, context)
            self._loops.append(Loop(loop.run))
        for partition in range(shape.query_partitions):
            stage = StageLoop(layer(), MongoSnapshots(client), partition, shape, context)
            self._loops.append(Loop(stage.run))

    def stop(self) -> None:
        for loop in self._loops:
            loop.kill()
        self._open.close()


class App:
    """Caches `{a: value}` for every value, again whenever it may not use what it has."""

    def __init__(self, layer: EventLayer, collection: Any, settings: Settings) -> None:
        self.collection = collection
        self.resets: list[str] = []
        self.registry = Registry(
            layer, ProcessContext.of(settings), Consequences(invalidated=lambda _: None, reset=self._reset)
        )
        self.cached: dict[int, tuple[tuple[str, ...], set[Any], int]] = {}
        self.refused = 0

    def _reset(self, why: str) -> None:
        self.resets.append(why)
        self.registry.resume()

    def live(self, value: int) -> bool:
        return value in self.cached and self.registry.live(self.cached[value][0], now_ms=system_clock())

    def result(self, value: int) -> tuple[list[Any], int]:
        reply = self.collection.database.command("find", self.collection.name, filter={"a": value}, batchSize=10_000)
        at = reply["operationTime"]
        return [record["_id"] for record in reply["cursor"]["firstBatch"]], at.time << 32 | at.inc

    async def cache(self, value: int) -> None:
        since, generation = self.registry.watermark(), self.registry.shape.generation if self.registry.shape else 0
        ids, read_at = await anyio.to_thread.run_sync(self.result, value)
        query = Query(namespace=self.collection.full_name, operation=Operation.FIND, filter={"a": value})
        read = CapturedRead(query=query, read_at=read_at, ids=tuple(ids))
        try:
            registered = await self.registry.register([read], since=since, expires_at_ms=system_clock() + 600_000)
        except QuaestorError:
            self.refused += 1
            return
        self.cached[value] = registered.ids, set(ids), generation


class Writer:
    """Writes to all values but UNTOUCHED, so that their results live; stands still while it is held."""

    def __init__(self, collection: Any, seed: int) -> None:
        self._collection = collection
        self._dice = random.Random(seed)
        self.held = threading.Lock()
        self.writes = 0
        self._loop = Loop(self._run)
        self.stop = self._loop.kill

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(0.002):
            with self.held:
                key, value = self._dice.randrange(KEYS), self._dice.randrange(VALUES // 2)
                if self._dice.random() < 0.2:
                    self._collection.delete_one({"_id": key, "a": {"$lt": VALUES // 2}})
                else:
                    self._collection.update_one({"_id": key, "a": {"$lt": VALUES // 2}}, {"$set": {"a": value}})
                    if self._dice.random() < 0.3:
                        self._collection.insert_one({"a": value})
                self.writes += 1

    @contextmanager
    def still(self) -> Iterator[None]:
        with self.held:
            yield


async def check(app: App, writer: Writer) -> int:
    """With the writer still and the app sure that it has heard of every write, what is live is what the database says."""
    with writer.still():
        moment = system_clock() + 1
        await eventually(lambda: app.registry._registrations.view.oldest_ms() > moment)
        live = [value for value in app.cached if app.live(value)]
        for value in live:
            ids, _ = await anyio.to_thread.run_sync(app.result, value)
            assert app.cached[value][1] == set(ids), f"stale: {value}, cached under {app.cached[value][2]}"
    return len(live)


async def load(app: App, seconds: float, dice: random.Random) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = dice.randrange(VALUES)
        if app.live(value):
            await anyio.lowlevel.checkpoint()
        else:
            await app.cache(value)


async def test_from_1x1_to_2x2_to_1x2_under_load_nothing_is_stale_nor_lost(
    mongo_url: str, shared_url: str, prefix: str
) -> None:
    """Every live result equals its re-execution at any time; what no write has touched lives through both resizes; a
    followed query's events, each applied once, give the database's result."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    dice = random.Random(seed)
    settings = Settings(
        deployment=prefix, **PATIENT,
        subscription_extend_ms=500, subscription_lease_ms=30_000,
        subscription_queue=100_000,  # the follower takes what has come between other things, however long they last
    )  # fmt: skip
    with ExitStack() as opened:
        client = opened.enter_context(pymongo.MongoClient[Document](mongo_url))
        collection = client[prefix]["c"]
        collection.insert_many([{"_id": key, "a": key % VALUES} for key in range(KEYS)])
        layer = opened.enter_context(closing(event_layer(shared_url, prefix)))
        app = App(layer, collection, settings)
        subscriptions = Subscriptions(layer, ProcessContext.of(settings), shape=lambda: app.registry.shape)
        grid = Threads(shared_url, client, settings, GridShape(query_partitions=1, write_partitions=1))
        opened.callback(lambda: grid.stop())
        app.registry.start()
        opened.callback(app.registry.stop)
        opened.callback(subscriptions.stop)
        await eventually(lambda: app.registry.serving(now_ms=system_clock()))
        query = Query(
            namespace=collection.full_name, operation=Operation.FIND, filter={"a": {"$lt": 5}}, sort=(("_id", 1),)
        )
        follower = Subscriber(await subscriptions.subscribe(query), ordered=True)
        writer = Writer(collection, seed)
        opened.callback(writer.stop)
        with anyio.fail_after(SLOWEST_S):
            while not all(app.live(value) for value in UNTOUCHED):
                await load(app, 0.2, dice)
        for generation, partitions in enumerate([(2, 2), (1, 2)], start=1):
            assert await check(app, writer) >= len(UNTOUCHED)
            shape = GridShape(query_partitions=partitions[0], write_partitions=partitions[1], generation=generation)
            old, grid = grid, Threads(shared_url, client, settings, shape, grid.shape)
            with anyio.fail_after(SLOWEST_S):
                while app.registry.shape != shape:
                    await load(app, 0.05, dice)
                    await check(app, writer)
            await anyio.to_thread.run_sync(old.stop)
            await load(app, 0.7, dice)
            await follower.take()
        assert await check(app, writer) >= len(UNTOUCHED)
        survivors = [value for value in UNTOUCHED if app.live(value) and not app.cached[value][2]]
        assert survivors == list(UNTOUCHED), "nothing touched them"
        assert app.resets == []
        await eventually(lambda: writer.writes > 100)
        with writer.still():
            expected = list(collection.find({"a": {"$lt": 5}}).sort("_id", 1))

            async def caught_up() -> bool:
                await follower.take()
                return [document for _, document in follower.rows] == expected

            await eventually(caught_up)
        assert follower.wholes == 1, "and never received the whole result again"
        for value in survivors:
            collection.insert_one({"a": value})
        await eventually(lambda: not any(app.live(value) for value in survivors))
        await follower.live.cancel()
