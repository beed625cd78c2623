"""The Cache Sketch as one process serves it: however many ask, one snapshot of a partition is made at a time, and one a second.

The last few are kept, for clients that name the one that they hold and are told the difference.
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
"""Snapshots of a partition: with one a second at most, more than the Δ of 10 s that is recommended."""


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
        self._errands = engine.read_path.supervisor.errands("sketch-snapshots")
        self.state = SketchState()

    async def current(self, now_ms: int) -> SketchSnapshot | None:
        """The snapshot of this second; None: the sketch does not answer."""
        # A clock that is set back more than once may show the same second again, hours later.
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
        """The body of an earlier snapshot that is still known."""
        return self._kept.get(version)

    async def _make(self) -> None:
        """A failure counts for a second too: a server that is down is not asked by every request."""
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
                )  # for whoever does not look at the switch
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
    """The union, and the partitions that there are. A partition that nobody has reported anything of is the union's: it contains
    them all, and strangers cannot make this process keep anything by asking for names that they have made up."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._union = SketchSource(engine)
        self._partitions: dict[str, SketchSource] = {}

    async def of(self, partition: str, now_ms: int) -> SketchSource:
        """The source of a partition; an empty token is the union."""
        if not partition:
            return self._union
        source = self._partitions.get(partition)
        if source is None:
            await self._union.current(now_ms)
            if partition not in self._union.state.partitions or len(self._partitions) >= MAX_PARTITIONS:
                return self._union
            source = self._partitions.setdefault(partition, SketchSource(self._engine, partition))
        return source
