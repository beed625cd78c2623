"""Watching of the Cache Sketch: its fill as metrics, and shorter lifetimes while it holds more keys than its capacity."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from quaestor.cache_sketch.fill import LifetimeFactors, fill_of
from quaestor.cache_sketch.partitions import label_of
from quaestor.cache_sketch.sizing import Geometry
from quaestor.clock import Clock
from quaestor.errors import SketchError
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CacheSketch

EVERY_S = 5.0
"""Pause between two looks."""


async def look(
    sketch: CacheSketch, factors: LifetimeFactors, geometry: Geometry, telemetry: Telemetry, *, now_ms: int
) -> None:
    """Measure each filter once. Raises SketchError.

    A saturated filter does not change lifetimes: it names everything because state was lost.
    """
    state, metrics = await sketch.state(now_ms=now_ms), telemetry.sketch
    metrics.removed.set(state.removed)
    for partition in ("", *sorted(state.partitions)):
        body = await sketch.snapshot(now_ms=now_ms, partition=partition)
        fill, name = fill_of(body, geometry), label_of(partition)
        metrics.keys.labels(name).set(fill.keys)
        metrics.fill.labels(name).set(fill.bits_set)
        metrics.false_positives.labels(name, "estimated").set(fill.estimated)
        metrics.false_positives.labels(name, "measured").set(fill.measured)
        if fill.bits_set < 1.0:
            factor = factors.adjust(partition, keys=fill.keys, capacity=geometry.capacity)
            metrics.lifetime_factor.labels(name).set(factor)


async def keep_watching(
    sketch: CacheSketch, factors: LifetimeFactors, geometry: Geometry, telemetry: Telemetry, clock: Clock
) -> None:
    """Look until cancelled. While the sketch does not answer, the last values stay; its users count the failures."""
    while True:
        with suppress(SketchError):
            await look(sketch, factors, geometry, telemetry, now_ms=clock())
        await asyncio.sleep(EVERY_S)
