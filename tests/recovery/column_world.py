"""One column of cells on a real Valkey, driven by hand: ingest and one app are played,
cells die in the middle of anything.

The app relies on a registration from the activation by every cell until its invalidation;
the result must then be as it was read.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from quaestor.clock import system_clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import streams
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.codec import decode_notification, encode_image, encode_query_event
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.partitioning import write_partition
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import (
    Activated,
    AfterImage,
    Cancellation,
    Cell,
    GridShape,
    Invalidated,
    MatchType,
    Notification,
    Operation,
    Query,
    Refused,
    Registration,
    WriteKind,
)
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import PipelineSize

RETENTION_MS = 60_000
LEASE_MS = 3_600_000


class KilledError(Exception):
    """The process is gone."""


class MortalLayer(RedisEventLayer):
    """Its process is killed before the n-th time that it changes anything. left: so many are done until then; None: all."""

    left: int | None = None

    def _change(self) -> None:
        if self.left is not None:
            if not self.left:
                raise KilledError
            self.left -= 1

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        self._change()
        super().append(stream, payloads)

    def trim(self, stream: str, *, before_ms: int) -> None:
        self._change()
        super().trim(stream, before_ms=before_ms)

    def trim_and_measure(self, before_ms: Mapping[str, int | None]) -> dict[str, PipelineSize]:
        """One request, of which the server may have performed a part."""
        for stream, before in before_ms.items():
            if before is not None:
                self.trim(stream, before_ms=before)
        return super().trim_and_measure(dict.fromkeys(before_ms))

    def put(self, name: str, value: bytes) -> None:
        self._change()
        super().put(name, value)


class ColumnWorld:
    """A column of cells. Age needs no waiting: see `age`."""

    def __init__(
        self, redis_url: str, deployment: str, patch: pytest.MonkeyPatch, *, rows: int = 2, bounds: PipelineBounds
    ) -> None:
        self.patch = patch
        self.age(old=False)
        self.url, self.deployment, self.bounds = redis_url, deployment, bounds
        self.shape = GridShape(query_partitions=1, write_partitions=rows)
        self.layer = RedisEventLayer(redis_url, deployment)
        self.queries = streams.queries(deployment, 0)
        self.telemetry = Telemetry()
        self.version = 1_000
        self.names, self.keys = itertools.count(1), itertools.count(1)
        self.values: dict[str, int] = {}
        self.missing: dict[str, set[Cell]] = {}
        self.changed: set[str] = set()
        self.dead: set[str] = set()
        self.said: list[Notification] = []
        self._after = "0"
        self.layers: dict[int, MortalLayer] = {}
        self.cells: dict[int, CellLoop] = {}
        self.tick()
        for row in range(rows):
            self.start(row)

    def close(self) -> None:
        for layer in [self.layer, *self.layers.values()]:
            layer.close()

    def age(self, *, old: bool) -> None:
        """Make all appended entries old enough to be trimmed by size, and every reader late,
        or keep them young for the whole test.
        """
        youngest_ms = -60_000 if old else 600_000
        self.patch.setattr("quaestor.invalidation.grid.query_retention.YOUNGEST_TRIMMED_MS", youngest_ms)
        self.patch.setattr("quaestor.invalidation.grid.cell_reader.doubtful_after_ms", lambda _: youngest_ms // 2)

    # The cells

    def start(self, row: int) -> None:
        """Start a cell, also instead of a killed one."""
        if row in self.layers:
            self.layers[row].close()
        cell = Cell(query_partition=0, write_partition=row)
        self.layers[row] = MortalLayer(self.url, self.deployment)
        self.cells[row] = CellLoop(
            MatchingNode(cell, self.shape, retention_ms=RETENTION_MS),
            self.layers[row],
            cell,
            self.shape,
            LoopContext(
                deployment=self.deployment, heartbeat_ms=1, retention_ms=RETENTION_MS, telemetry=self.telemetry
            ),
        )
        # Of the query pipeline alone: this app does not look whether it has missed what is trimmed elsewhere.
        self.cells[row].parts.retention.bounds = self.bounds

    def step(self, row: int, *, trims: bool = False) -> None:
        loop = self.cells[row]
        if not loop.started:
            loop.start()
        loop.parts.periodic.heartbeat_due_s = 0.0
        loop.parts.periodic.maintenance_due_s = 0.0 if trims else float("inf")
        loop.step()

    def look_after(self, row: int) -> None:
        """Everything that this cell can do for the room in the pipelines now."""
        self.step(row, trims=True)
        while self.cells[row].parts.retention.unfinished:
            self.step(row)

    def settle(self, *rows: int) -> None:
        """Wait until these cells, by default all, have read everything, and the app has received their notifications."""
        self.tick()
        newest = self.layer.read({self.queries: "0"}, count=1_000_000, block_ms=0)
        for row in rows or self.cells:
            while True:
                self.step(row)
                loop = self.cells[row]
                caught_up = not newest or loop.position.queries >= newest[-1].offset
                if caught_up and loop.node.watermark == self.version and not loop.parts.outbox:
                    break
        self.listen()

    # Ingest

    def tick(self) -> None:
        self.version += 1
        tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=self.version, wall_ms=system_clock())
        for row in range(self.shape.write_partitions):
            self.layer.append(streams.writes(self.deployment, row), [encode_image(tick)])

    def write(self, value: int) -> None:
        self.version += 1
        key = next(self.keys)
        image = AfterImage(
            namespace="db.c", kind=WriteKind.INSERT, version=self.version, key=key, after={"_id": key, "a": value},
            after_exact=True, before_known=True, wall_ms=system_clock(),
        )  # fmt: skip
        partition = write_partition(key, self.shape.write_partitions)
        self.layer.append(streams.writes(self.deployment, partition), [encode_image(image)])
        self.changed |= {name for name, matched in self.values.items() if matched == value}

    # The app

    def register(self, value: int) -> str:
        name = f"r{next(self.names)}"
        self.values[name], self.missing[name] = value, set(self.shape.cells)
        registration = Registration(
            id=name, tenant=self.deployment, query_id=f"q{value}",
            query=Query(namespace="db.c", operation=Operation.FIND, filter={"a": value}),
            since=self.version, read_at=self.version, members=(), last=None, expires_at_ms=system_clock() + LEASE_MS,
        )  # fmt: skip
        self.layer.append(self.queries, [encode_query_event(registration)])
        return name

    def cancel(self, name: str) -> None:
        self.dead.add(name)
        cancellation = Cancellation(tenant=self.deployment, query_id=f"q{self.values[name]}", registration_ids=(name,))
        self.layer.append(self.queries, [encode_query_event(cancellation)])

    def listen(self) -> None:
        stream = streams.notifications(self.deployment)
        while entries := self.layer.read({stream: self._after}, count=1_000, block_ms=0):
            self._after = entries[-1].offset
            for entry in entries:
                self._hear(decode_notification(entry.payload))

    def _hear(self, message: Notification) -> None:
        self.said.append(message)
        match message:
            case Activated():
                self.missing[message.registration_id].discard(message.cell)
            case Refused():
                self.dead.add(message.registration_id)
            case Invalidated():
                for name in message.registration_ids:
                    if name not in self.dead:
                        self.cancel(name)

    def live(self) -> set[str]:
        """Return the registrations on which the app relies."""
        return {name for name, cells in self.missing.items() if not cells} - self.dead

    def given_up(self) -> set[str]:
        evictions = [
            message
            for message in self.said
            if isinstance(message, Invalidated) and message.match_type is MatchType.EVICTED
        ]
        return {name for notification in evictions for name in notification.registration_ids}

    def entries(self) -> int:
        return self.layer.measure(self.queries).entries

    def check(self) -> None:
        """When all is settled: nothing that a write has changed is relied on."""
        assert not self.live() & self.changed


def survives(world: ColumnWorld, row: int, changes: int) -> bool:
    """Look after the pipelines; the cell is killed after so many changes. Whether it came to its end before."""
    world.layers[row].left = changes
    try:
        world.look_after(row)
    except KilledError:
        return False
    except EventLayerError as error:
        raise AssertionError(error) from error
    world.layers[row].left = None
    return True
