"""An ingest in a thread, and the far end of its pipelines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymongo
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.codec import decode_image
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.model import AfterImage, GridShape, WriteKind
from quaestor.ports import EventLayer
from tests.support import running

DEADLINE_S = 30
HEARTBEAT_MS = 40
Client = pymongo.MongoClient[dict[str, Any]]


class Commands(CommandListener):
    """Names of the commands that a client sent."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        """Note the command."""
        self.names.append(event.command_name)

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


class Pipelines:
    """The far end: reads every write pipeline and remembers all images."""

    def __init__(self, layer: EventLayer, deployment: str, partitions: int) -> None:
        self.layer = layer
        self.offsets = {streams.writes(deployment, partition): "0" for partition in range(partitions)}
        self.partitions = list(self.offsets)
        self.images: list[tuple[int, AfterImage]] = []

    def until(self, enough: Callable[[list[AfterImage]], bool]) -> list[AfterImage]:
        """All images so far, once `enough` of them; ticks are left out of what it sees."""
        deadline = time.monotonic() + DEADLINE_S
        while not enough(images := [image for _, image in self.images if image.kind is not WriteKind.TICK]):
            assert time.monotonic() < deadline, images
            self.read()
        return images

    def until_tick_after(self, at_ms: int) -> AfterImage:
        """A tick of every pipeline that proves at_ms; the last of them."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            proving = {p: i for p, i in self.images if i.kind is WriteKind.TICK and i.wall_ms >= at_ms}
            if len(proving) == len(self.partitions):
                return proving[0]
            assert time.monotonic() < deadline, self.images[-10:]
            self.read()

    def read(self) -> None:
        for entry in self.layer.read(self.offsets, count=1000, block_ms=200):
            self.offsets[entry.stream] = entry.offset
            self.images.append((self.partitions.index(entry.stream), decode_image(entry.payload)))


@contextmanager
def ingesting(
    client: Client,
    layer: EventLayer,
    deployment: str,
    *,
    partitions: int = 1,
    wait: bool = True,
    bounds: PipelineBounds | None = None,
) -> Iterator[Pipelines]:
    """An ingest in a thread of its own, past its start; stopped at the end."""
    shape = GridShape(query_partitions=1, write_partitions=partitions)
    ingest = ChangeStreamFollower(
        client,
        layer,
        shape,
        LoopContext(deployment=deployment, heartbeat_ms=HEARTBEAT_MS, bounds=bounds or PipelineBounds()),
    )
    pipelines = Pipelines(layer, deployment, partitions)
    with running(ingest.run, within_s=DEADLINE_S):
        if wait:
            pipelines.until_tick_after(system_clock())
        yield pipelines


def of(images: Sequence[AfterImage], namespace: str) -> list[AfterImage]:
    return [image for image in images if image.namespace == namespace]


def summary(image: AfterImage) -> tuple[Any, ...]:
    return image.kind, image.key, image.after, image.after_exact, image.before, image.before_known


def count(namespace: str, n: int) -> Callable[[list[AfterImage]], bool]:
    return lambda images: len(of(images, namespace)) >= n
