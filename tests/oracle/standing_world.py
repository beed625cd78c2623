"""A whole grid in one process, fed by hand from a real change stream.

Cells and stages run in threads that can be killed. Subscribers see only what an application sees.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pymongo

from quaestor.errors import EventLayerResetError, UnsupportedQueryError
from quaestor.event_layer import streams
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.codec import decode_notification, encode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.partitioning import write_partition
from quaestor.incremental import RenewalSettings, ResultEvent, replay, unambiguous
from quaestor.incremental.planning import plan_maintenance
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import AfterImage, Cell, GridShape, Heartbeat, Query, Version, WriteKind
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.realtime.live import LiveResult, Whole
from quaestor.realtime.notices import Notice
from quaestor.realtime.rules import StageRules
from quaestor.realtime.snapshots import MongoSnapshots, Snapshot
from quaestor.realtime.stage import StageLoop
from quaestor.realtime.subscriptions import Subscriptions
from quaestor.redis import clients
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.oracle.maintained_world import World, comparable
from tests.support import Loop, eventually

Document = dict[str, Any]
JOIN_S = 20


class Racing(MongoSnapshots):
    """Reads whose results arrive only after `meanwhile` was called: its writes come too late for the read."""

    meanwhile: Callable[[], None] | None = None

    def read(self, queries: Sequence[Query], *, at_least: Version, recent: Version = 0) -> Snapshot:
        snapshot = super().read(queries, at_least=at_least, recent=recent)
        if self.meanwhile is not None:
            self.meanwhile()
        return snapshot


@dataclass
class Subscriber:
    """An application's own list, made of the events."""

    live: LiveResult
    ordered: bool
    rows: list[tuple[Any, Any]] = field(default_factory=list)
    events: int = 0
    wholes: int = 0
    notices: list[Notice] = field(default_factory=list)

    async def take(self) -> None:
        """Everything that has arrived."""
        while self.live.waiting:
            event = await anext(self.live)
            if isinstance(event, Whole):
                self.rows, self.wholes = list(event.rows), self.wholes + 1
            elif isinstance(event, ResultEvent):
                self.rows = replay(self.rows, [event])
                self.events += 1
            else:
                self.notices.append(event)


class Grid:
    """Cells and stages of one shape on one event layer; ingest is played by `feed`."""

    def __init__(
        self,
        client: pymongo.MongoClient[Document],
        shape: GridShape,
        *,
        layer: Callable[[], EventLayer] | None = None,
        snapshots: Racing | None = None,
        renewal: RenewalSettings | None = None,
        bounds: PipelineBounds | None = None,
        most_queries: int = 1_000,
        **settings: Any,
    ) -> None:
        self.snapshots = snapshots or Racing(client)
        self.shape = shape
        memory = MemoryEventLayer()
        self.connect = layer or (lambda: memory)
        self.layer = self.connect()
        self.settings = Settings(**{"deployment": "oracle", "heartbeat_ms": 50, **settings})
        self.most_queries = most_queries
        self.nodes: dict[Cell, MatchingNode] = {}
        self.loops: dict[int, StageLoop] = {}
        self.renewal = renewal or RenewalSettings(slack=1, most_slack=6, poll_interval_ms=1)
        self.bounds = bounds
        self.telemetry = Telemetry()
        self.cells: dict[Cell, Loop] = {}
        self.stages: dict[int, Loop] = {}
        self.apps: list[Subscriptions] = []
        self._start()

    def _start(self) -> None:
        for query_partition in range(self.shape.query_partitions):
            self.start_stage(query_partition)
            for write_part in range(self.shape.write_partitions):
                self.start_cell(Cell(query_partition=query_partition, write_partition=write_part))

    def reshape(self, shape: GridShape) -> None:
        """Another grid takes the place of this one."""
        for loop in [*self.cells.values(), *self.stages.values()]:
            loop.kill()
        for parts in (self.cells, self.stages, self.nodes, self.loops):
            parts.clear()
        self.shape = shape
        self._start()

    def app(self, *, tenant: str = "") -> Subscriptions:
        settings = replace(self.settings, tenant=tenant)
        app = Subscriptions(
            self.connect(), ProcessContext.of(settings, telemetry=self.telemetry), shape=lambda: self.shape
        )
        self.apps.append(app)
        return app

    def start_cell(self, cell: Cell) -> None:
        self.nodes[cell] = MatchingNode(cell, self.shape, retention_ms=self.settings.grid.retention_ms)
        loop = CellLoop(
            self.nodes[cell],
            self.connect(),
            cell,
            self.shape,
            LoopContext(
                deployment=self.settings.deployment,
                heartbeat_ms=self.settings.grid.heartbeat_ms,
                retention_ms=self.settings.grid.retention_ms,
                bounds=self.bounds or PipelineBounds(),
                telemetry=self.telemetry,
            ),
        )
        self.cells[cell] = Loop(loop.run)

    def start_stage(self, query_partition: int) -> None:
        loop = StageLoop(
            self.connect(),
            self.snapshots,
            query_partition,
            self.shape,
            LoopContext(
                deployment=self.settings.deployment,
                heartbeat_ms=self.settings.grid.heartbeat_ms,
                retention_ms=self.settings.grid.retention_ms,
                telemetry=self.telemetry,
            ),
            rules=StageRules(
                renewal=self.renewal,
                readers=2,
                lease_ms=self.settings.realtime.subscription_lease_ms,
                max_queries=self.most_queries,
            ),
        )
        self.loops[query_partition] = loop
        self.stages[query_partition] = Loop(loop.run)

    def queries(self) -> tuple[int, int]:
        """How many queries the stages follow, and the cells."""
        return (
            sum(loop.queries for loop in self.loops.values()),
            sum(len(node.subscriptions) for node in self.nodes.values()),
        )

    def vanish(self, app: Subscriptions) -> None:
        """The app process is gone without a word."""
        self.apps.remove(app)
        assert app._thread is not None
        app._thread.stop()

    def lose_everything(self, redis_url: str) -> None:
        """Redis comes back without its data, as far as this grid is concerned."""
        with clients.client(redis_url) as server:
            for key in server.scan_iter(match=f"quaestor:{{{self.settings.deployment}:*"):
                server.delete(key)

    def stop(self) -> None:
        for app in self.apps:
            app.stop()
        for loop in [*self.cells.values(), *self.stages.values()]:
            loop.kill()

    def wait(self, version: int) -> None:
        """Until every cell has worked off what was fed up to this version. For any thread."""
        stream = streams.notifications(self.settings.deployment)
        missing, after, deadline = set(self.cells), "0", time.monotonic() + JOIN_S
        while missing:
            assert time.monotonic() < deadline, f"cells that lag: {missing}"
            for entry in self.layer.read({stream: after}, count=1_000, block_ms=50):
                after, said = entry.offset, decode_notification(entry.payload)
                if isinstance(said, Heartbeat) and said.watermark >= version:
                    missing.discard(said.cell)

    def feed(self, images: list[AfterImage], version: int) -> None:
        """Append the images as ingest would, and a tick with the version of its progress."""
        partitions = self.shape.write_partitions
        tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=version, wall_ms=(version >> 32) * 1000)
        batches: list[list[bytes]] = [[] for _ in range(partitions)]
        for image in images:
            if image.key is None and image.kind in (WriteKind.COLLECTION, WriteKind.GAP):
                for batch in batches:
                    batch.append(encode_image(image))
            else:
                batches[write_partition(image.key, partitions)].append(encode_image(image))
        for partition, batch in enumerate(batches):
            stream = streams.writes(self.settings.deployment, partition)
            try:
                self.layer.append(stream, [*batch, encode_image(tick)])
            except EventLayerResetError:
                gap = AfterImage(namespace="*", kind=WriteKind.GAP, version=version)
                for each in range(partitions):
                    everything = [encode_image(gap), encode_image(tick)]
                    self.layer.append(streams.writes(self.settings.deployment, each), everything)


@dataclass
class StandingWorld:
    """A database, a grid that follows it, and subscribers to random queries."""

    world: World
    grid: Grid
    subscribers: list[Subscriber] = field(default_factory=list)
    racing: threading.Lock = field(default_factory=threading.Lock)

    async def subscribe(self, app: Subscriptions, query: Query | None = None) -> Subscriber | None:
        """To a random query, if none is given; None if that cannot be maintained."""
        query = query or self.world.generator.query()
        try:
            maintenance = plan_maintenance(query)
            live = await app.subscribe(query)
        except UnsupportedQueryError:
            return None
        subscriber = Subscriber(live, maintenance.window is not None)
        self.subscribers.append(subscriber)
        return subscriber

    async def cancel(self, subscriber: Subscriber) -> None:
        self.subscribers.remove(subscriber)
        await subscriber.live.cancel()

    def write(self, count: int = 1) -> None:
        """Random writes, and what the change stream says of them."""
        for _ in range(count):
            self.world.write()
        self.feed()

    def race(self) -> None:
        """Make writes after each read from now on, which the cells see before the read is announced to them."""

        def meanwhile() -> None:
            with self.racing:
                if self.grid.snapshots.meanwhile is not None:
                    self.write(self.world.random.randint(1, 4))
                    self.grid.wait(self.world.version)

        self.grid.snapshots.meanwhile = meanwhile

    def calm(self) -> None:
        """No longer."""
        with self.racing:
            self.grid.snapshots.meanwhile = None

    def feed(self) -> None:
        images = self.world.drain()
        self.grid.feed(images, self.world.version)

    async def settle(self) -> None:
        """Wait until every subscriber has received the notice that its result is complete."""
        for subscriber in self.subscribers:
            await eventually(lambda live=subscriber.live: live.version >= self.world.version)  # type: ignore[misc]

    async def check(self, note: str) -> None:
        """Every subscriber's list is what the database returns for his query executed now."""
        await self.settle()
        for subscriber in self.subscribers:
            await subscriber.take()
            query = subscriber.live.query
            expected = comparable(self.world.execute(unambiguous(query)), subscriber.ordered)
            shown = [document for _, document in subscriber.rows]
            assert comparable(shown, subscriber.ordered) == expected, f"{note}: {query}\n  subscriber {shown}"
            assert comparable([row for _, row in subscriber.live.rows()], subscriber.ordered) == expected, note

    def agrees(self, subscriber: Subscriber) -> bool:
        """Whether the subscriber's list, as of now, is what the database returns."""
        query = subscriber.live.query
        expected = comparable(self.world.execute(unambiguous(query)), subscriber.ordered)
        return bool(comparable([document for _, document in subscriber.rows], subscriber.ordered) == expected)

    async def until_right(self) -> None:
        """Wait until every list is right, without relying on reported progress."""
        for subscriber in self.subscribers:

            async def right(subscriber: Subscriber = subscriber) -> bool:
                await subscriber.take()
                return self.agrees(subscriber)

            await eventually(right)

    def close(self) -> None:
        self.grid.stop()
        self.world.close()
