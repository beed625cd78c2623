"""Worlds in which results are followed, made for one test each."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pymongo

from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.model import GridShape, Operation, Query
from quaestor.ports import StreamEntry
from tests.oracle.maintained_generator import Document, Generator
from tests.oracle.maintained_world import World
from tests.oracle.standing_world import Grid, StandingWorld
from tests.support import DEADLINE_S

ONE = GridShape(query_partitions=1, write_partitions=1)
FOUR = GridShape(query_partitions=2, write_partitions=2)


class Opened:
    """Makes worlds, and takes them down at the end of the test."""

    def __init__(self, client: pymongo.MongoClient[Document], prefix: str) -> None:
        self.client, self.prefix = client, prefix
        self.worlds: list[StandingWorld] = []

    def __call__(self, shape: GridShape = ONE, *, seed: int = 1, images: bool = False, **grid: Any) -> StandingWorld:
        name = f"{self.prefix}_{len(self.worlds)}"
        world = World(self.client, name, images, Generator(seed, name))
        standing = StandingWorld(world, Grid(self.client, shape, **grid))
        self.worlds.append(standing)
        standing.feed()
        return standing

    def find(self, standing: StandingWorld, **match: Any) -> Query:
        return Query(namespace=f"{standing.world.name}.things", operation=Operation.FIND, filter=match)


async def subscribed(standing: StandingWorld, number: int) -> None:
    apps = [standing.grid.app(), standing.grid.app()]
    while len(standing.subscribers) < number:
        await standing.subscribe(standing.world.random.choice(apps))


class Stalling(MemoryEventLayer):
    """An event layer whose reads of one kind of pipeline wait until `going` is set.

    waiting: set when a reader waits there, after its earlier read.
    """

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.going = threading.Event()
        self.going.set()
        self.waiting = threading.Event()

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        if any(stream.endswith(self.kind) for stream in offsets) and not self.going.is_set():
            self.waiting.set()
            self.going.wait(2 * DEADLINE_S)
        return super().read(offsets, count=count, block_ms=block_ms)
