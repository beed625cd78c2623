"""Own writes of requests: their answers wait until nothing older is served, so that whoever reads after them reads new data.

Waited for is, in this order: ingest has delivered the writes and says so at once, as it is asked to
(`quaestor/invalidation/ingest/prompt_ticks.py`); every cell has matched them; this process has marked dead what they change, and
its effects are done: evicted from memory and from the shared store, purged from the CDNs. All of that within a bound; what takes
longer is not waited for.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

import bson

from quaestor.clock import Clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import streams
from quaestor.invalidation.effects.progress import EffectsProgress
from quaestor.model import Version
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer
from quaestor.settings import Settings

ASKED_FOR_MS: Final = 10_000
"""How long ingest ticks promptly after it was asked to; asked again when half of it is over."""
_REPORT_EVERY_S: Final = 60.0


class GridProgress(Protocol):
    """Progress of the grid through the writes: see WriteProgress."""

    async def until(self, version: Version) -> None:
        """Returns when all writes up to this version are matched and acted on."""


class Serving(Protocol):
    """Question whether anything may be served from cache at a moment: see QueryRegistry.serving()."""

    def __call__(self, *, now_ms: int) -> bool: ...


class OwnWrites:
    """Implements ports.OwnWritesBarrier. Use from one event loop.

    grid: None: there is none, and nothing is waited for.
    serving: whether anything may be served from cache now.
    """

    def __init__(
        self,
        layer: EventLayer,
        *,
        grid: GridProgress | None,
        serving: Serving,
        effects: EffectsProgress,
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._layer = layer
        self._grid = grid
        self._serving = serving
        self._effects = effects
        self._bound_s = settings.grid.read_your_writes_ms / 1000
        self._name = streams.awaited(settings.deployment)
        self._telemetry = telemetry
        self._clock = clock
        self._ask_again_ms = 0
        self._late = 0
        self._report_due_s = 0.0

    def expect(self) -> None:
        """See ports.OwnWritesBarrier. Next to nothing, unless it is the first time in a while."""
        now_ms = self._clock()
        if now_ms < self._ask_again_ms or self._grid is None or not self._bound_s:
            return
        self._ask_again_ms = now_ms + ASKED_FOR_MS // 2
        value = bson.encode({"until": now_ms + ASKED_FOR_MS})
        if self._layer.immediate:
            self._ask(value)
        else:
            asyncio.get_running_loop().run_in_executor(None, self._ask, value)

    async def passed(self, version: Version) -> None:
        """See ports.OwnWritesBarrier."""
        if self._grid is None or not self._bound_s:
            return
        begun_s = time.perf_counter()
        self.expect()
        outcome = await self._outcome(self._grid, version)
        self._telemetry.requests.own_writes.labels(outcome).inc()
        self._telemetry.requests.own_writes_s.observe(time.perf_counter() - begun_s)
        if outcome == "late":
            self._report()

    async def _outcome(self, grid: GridProgress, version: Version) -> str:
        if not version or not self._serving(now_ms=self._clock()):
            return "unknown"
        try:
            async with asyncio.timeout(self._bound_s):
                await grid.until(version)
                await self._effects.caught_up()
        except TimeoutError:
            return "late"
        return "seen"

    def ask_again(self, _why: str) -> None:
        """Forget that ingest was asked: the event layer has lost the request. From any thread."""
        self._ask_again_ms = 0

    def _ask(self, value: bytes) -> None:
        try:
            self._layer.put(self._name, value)
        except EventLayerError as error:
            self._ask_again_ms = 0
            self._telemetry.failure("event-layer", "own_writes.not_asked", error)

    def _report(self) -> None:
        """One line a minute: the count is in the metrics."""
        self._late += 1
        now_s = time.monotonic()
        if now_s >= self._report_due_s:
            self._report_due_s = now_s + _REPORT_EVERY_S
            late, self._late = self._late, 0
            self._telemetry.failure("grid", "own_writes.late", f"after {self._bound_s * 1000:.0f} ms", answers=late)
