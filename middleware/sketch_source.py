"""The Cache Sketch as one process serves it. For any number of requests, one snapshot of a partition is made a second at most.

The last few snapshots are kept. Clients that name the one that they hold receive the difference.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from time import monotonic

from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.partitions import MAX_PARTITIONS
from quaestor.cache_sketch.sizing import geometry_of
from quaestor.errors import QuaestorError
from quaestor.middleware.interface import Engine
from quaestor.middleware.sketch_snapshot import SketchSnapshot
from quaestor.ports import SketchState

MICRO_CACHE_MS = 1_000
KEPT = 16
"""Snapshots kept of a partition. At one a second at most, they cover more than the recommended Δ of 10 s."""


class SketchSource:
    """The snapshots of one partition.

    partition: its token; empty: the union of all.
    """

    def __init__(self, engine: Engine, partition: str = "") -> None:
        self._engine = engine
        self._partition = partition
        self._snapshot: SketchSnapshot | None = None
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._made_at_ms = 0
        self._until_ms = 0
        self._made_s = 0.0
        self._making: asyncio.Task[None] | None = None
        self._errands = engine.read_path.process.supervisor.errands("sketch-snapshots")
        self.state = SketchState()

    async def current(self, now_ms: int) -> SketchSnapshot | None:
        """Return the snapshot of this second; None: the sketch is unavailable."""
        # A clock that is set back more than once may show the same second again, hours later; hence the monotonic time.
        if (
            now_ms >= self._until_ms
            or now_ms < self._made_at_ms
            or monotonic() - self._made_s >= MICRO_CACHE_MS / 1_000
        ):
            if self._making is None or self._making.done() or self._making.get_loop() is not asyncio.get_running_loop():
                self._making = self._errands.start(self._make())
            await asyncio.shield(self._making)
        return self._snapshot

    def earlier(self, version: bytes) -> bytes | None:
        """Return the body of an earlier snapshot that is still kept."""
        return self._kept.get(version)

    async def _make(self) -> None:
        """Make a snapshot. A failure lasts for a second too, so that not every request tries a server that is down."""
        engine = self._engine
        now_ms = engine.read_path.clock()
        self._made_at_ms, self._until_ms, self._made_s = now_ms, now_ms + MICRO_CACHE_MS, monotonic()
        off = engine.settings.sketch.sketch_off
        try:
            if not off:
                self.state = await engine.sketch.state(now_ms=now_ms)
                off = self.state.off
            if off:
                body = wire_format.saturated(
                    geometry_of(engine.settings.sketch)
                )  # for clients that ignore the `off` parameter
            else:
                body = await engine.sketch.snapshot(now_ms=now_ms, partition=self._partition)
        except QuaestorError as error:
            self._snapshot = None
            engine.telemetry.failure("sketch", "sketch_endpoint.snapshot_failed", error)
            return
        if self._snapshot is not None and self._snapshot.body == body:
            self._snapshot = self._snapshot.again(now_ms, off=off)
            return
        self._snapshot = SketchSnapshot(body, now_ms, off=off)
        self._kept[self._snapshot.version] = body
        self._kept.move_to_end(self._snapshot.version)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


class SketchSources:
    """The sources of the union and of each existing partition. An unknown partition has the union's source, which contains all
    partitions. Therefore strangers cannot fill memory with made-up names."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._union = SketchSource(engine)
        self._partitions: dict[str, SketchSource] = {}

    async def of(self, partition: str, now_ms: int) -> SketchSource:
        """Return the source of a partition; an empty token is the union."""
        if not partition:
            return self._union
        source = self._partitions.get(partition)
        if source is None:
            await self._union.current(now_ms)
            if partition not in self._union.state.partitions or len(self._partitions) >= MAX_PARTITIONS:
                return self._union
            source = self._partitions.setdefault(partition, SketchSource(self._engine, partition))
        return source
