"""Own writes of requests: an answer waits until no older data is served, so that a read after it returns new data.

The answer waits for four events, in this order. Ingest has delivered the writes, and reports them at once on request
(`quaestor/invalidation/ingest/prompt_ticks.py`). Every cell has matched them. This process has marked the changed registrations
dead. Their effects are done: entries evicted from memory and from the shared store, and purged from the CDNs. All waits end at
a bound; the answer is then sent without the rest.
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
"""Duration for which ingest ticks promptly after a request; the request is renewed at half of it."""
_REPORT_EVERY_S: Final = 60.0


class GridProgress(Protocol):
    """Progress of the grid through the writes: see WriteProgress."""

    async def until(self, version: Version) -> None:
        """Return when all writes up to this version are matched and acted on."""


class Serving(Protocol):
    """Check whether the cache may serve at a moment: see QueryRegistry.serving()."""

    def __call__(self, *, now_ms: int) -> bool: ...


class OwnWrites:
    """Barrier for own writes. Implements ports.OwnWritesBarrier. Use from one event loop.

    grid: None: there is no grid, and no answer waits.
    serving: whether the cache may serve now.
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
        """See ports.OwnWritesBarrier. Costs next to nothing, except for the first call in a while."""
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
        """Forget that ingest was asked: the event layer has lost the request. Safe from any thread."""
        self._ask_again_ms = 0

    def _ask(self, value: bytes) -> None:
        try:
            self._layer.put(self._name, value)
        except EventLayerError as error:
            self._ask_again_ms = 0
            self._telemetry.failure("event-layer", "own_writes.not_asked", error)

    def _report(self) -> None:
        """Log late answers, one line a minute; the metrics hold the count."""
        self._late += 1
        now_s = time.monotonic()
        if now_s >= self._report_due_s:
            self._report_due_s = now_s + _REPORT_EVERY_S
            late, self._late = self._late, 0
            self._telemetry.failure("grid", "own_writes.late", f"after {self._bound_s * 1000:.0f} ms", answers=late)
