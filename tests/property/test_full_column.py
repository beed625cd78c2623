"""A column of two small cells and a real registry: what the app takes for guarded is guarded by every cell, always."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from quaestor.clock import system_clock
from quaestor.errors import RegistrationRefusedError
from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.partitioning import write_partition
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import (
    AfterImage,
    CapturedRead,
    Cell,
    GridShape,
    Invalidated,
    MatchType,
    Operation,
    Query,
    WriteKind,
)
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

DRAWS, MOST_DRAWS = 250, 5_000
SHAPE = GridShape(query_partitions=1, write_partitions=2)
DEPLOYMENT = "full"
QUERIES = 30
ROOM = 8


class Column:
    """Both cells in threads, ingest played by hand, a registry that believes what it hears."""

    def __init__(self) -> None:
        settings = Settings(deployment=DEPLOYMENT, **PATIENT | {"heartbeat_ms": 20})
        self.layer = MemoryEventLayer()
        self.telemetry = Telemetry()
        self.heard: list[Invalidated] = []
        self.registry = Registry(
            self.layer,
            ProcessContext.of(settings, telemetry=self.telemetry),
            Consequences(invalidated=self.heard.extend, reset=lambda why: None),
        )
        self.nodes: list[MatchingNode] = []
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []
        self.version = 1
        for partition in range(2):
            cell = Cell(query_partition=0, write_partition=partition)
            node = MatchingNode(
                cell, SHAPE, retention_ms=60_000, limits=NodeLimits(max_registrations=ROOM, max_unindexed=3, grace_ms=0)
            )
            self.nodes.append(node)
            loop = CellLoop(
                node,
                self.layer,
                cell,
                SHAPE,
                LoopContext(deployment=DEPLOYMENT, heartbeat_ms=20, retention_ms=60_000, telemetry=self.telemetry),
            )
            self.threads.append(threading.Thread(target=loop.run, args=(self.stop,)))

    def append(self, partition: int, image: AfterImage) -> None:
        self.layer.append(streams.writes(DEPLOYMENT, partition), [encode_image(image)])

    def tick(self) -> None:
        for partition in range(2):
            now_ms = system_clock()
            self.append(partition, AfterImage(namespace="*", kind=WriteKind.TICK, version=self.version, wall_ms=now_ms))

    def write(self, value: int) -> None:
        self.version += 1
        key = f"new{self.version}"
        image = AfterImage(
            namespace="d.c", kind=WriteKind.INSERT, version=self.version, key=key, after={"_id": key, "a": value},
            after_exact=True, before_known=True, wall_ms=system_clock(),
        )  # fmt: skip
        self.append(write_partition(key, 2), image)
        self.tick()

    async def cache(self, number: int) -> tuple[str, ...]:
        """A response of one or two queries; their registrations, none if it was refused."""
        numbers = {number, number * 7 % QUERIES}
        condition = {n: {"a": n} if n % 5 else {"a": {"$ne": n}} for n in numbers}
        reads = [
            CapturedRead(
                query=Query(namespace="d.c", operation=Operation.FIND, filter=condition[n]),
                read_at=self.version,
                ids=tuple(f"r{n}.{member}" for member in range(3)),
            )
            for n in numbers
        ]
        try:
            registered = await self.registry.register(
                reads, since=self.version, expires_at_ms=system_clock() + 3_600_000
            )
        except RegistrationRefusedError:
            return ()
        return registered.ids[-len(registered.query_ids) :]  # before them there may be one that no cell knows

    async def until_dead(self, ids: Sequence[str]) -> None:
        await eventually(lambda: not self.live(ids))

    def guarded(self, ids: Sequence[str]) -> bool:
        return all(registration_id in node._live for registration_id in ids for node in self.nodes)

    def live(self, ids: Sequence[str]) -> bool:
        return self.registry.live(ids, now_ms=system_clock())


@asynccontextmanager
async def running() -> AsyncIterator[Column]:
    column = Column()
    for thread in column.threads:
        thread.start()
    column.registry.start()
    try:
        column.tick()
        await eventually(lambda: column.registry.serving(now_ms=system_clock()))
        yield column
    finally:
        column.registry.stop()
        column.stop.set()
        for thread in column.threads:
            thread.join(20)


async def test_entries_that_the_app_takes_for_guarded_are_guarded_by_every_cell() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    dice = random.Random(seed)
    cached: list[tuple[str, ...]] = []
    lives = 0
    async with running() as column:
        ids = await column.cache(0)  # {"a": {"$ne": 0}}
        column.write(1)  # hardly any draw is without a write that changes something, but one in some thousands is
        await column.until_dead(ids)
        for draw in range(MOST_DRAWS):
            if draw >= DRAWS and lives > 100:  # a busy machine refuses more registrations
                break
            if dice.random() < 0.1:
                column.write(dice.randrange(QUERIES))
            if ids := await column.cache(min(int(dice.paretovariate(0.5)), QUERIES - 1)):
                cached.append(ids)
            for entry in cached[-20:]:
                guarded = column.guarded(entry)
                lives += guarded
                # Asked in this order: a cell forgets first and tells afterwards, within a heartbeat.
                if not guarded:
                    await column.until_dead(entry)
        await eventually(lambda: all(node.registrations <= ROOM for node in column.nodes))
        assert any(notification.match_type is MatchType.EVICTED for notification in column.heard)
        assert any(notification.match_type is not MatchType.EVICTED for notification in column.heard)
        dead = [entry for entry in cached if not column.live(entry)]
        assert dead
        assert lives > 100, "and much was guarded meanwhile"
        for entry in cached:
            if not column.guarded(entry):
                await column.until_dead(entry)
