"""Sizing of the Cache Sketch: geometry from the expected keys, fill of a filter, lifetimes from the fill."""

from __future__ import annotations

import random

import pytest

from quaestor.cache_sketch import MemoryCacheSketch
from quaestor.cache_sketch.fill import LifetimeFactors, fill_of
from quaestor.cache_sketch.sizing import BODY_BYTES, DEFAULT, HEADER_BYTES, fitting, geometry_of
from quaestor.observability.telemetry import Telemetry
from quaestor.read_path.sketch_watching import look
from quaestor.settings import Settings

NOW_MS = 1_700_000_000_000


def test_by_default_it_is_the_geometry_that_was_fixed() -> None:
    assert geometry_of(Settings().sketch) is DEFAULT


@pytest.mark.parametrize("entries", [1, 100, 1_000, 20_000, 40_000])
@pytest.mark.parametrize("rate", [0.001, 0.01, 0.065, 0.3])
@pytest.mark.parametrize("budget_bytes", [100, 1_000, BODY_BYTES, 32_000])
def test_it_fits_the_budget_and_keeps_the_rate_for_as_many_keys_as_it_says(
    entries: int, rate: float, budget_bytes: int
) -> None:
    """Where all of them fit, no more bytes than needed: with a hundredth less the rate is not kept any more."""
    geometry = fitting(entries, rate, budget_bytes=budget_bytes)
    assert geometry.size_bytes + HEADER_BYTES <= budget_bytes
    assert geometry.capacity <= entries
    assert geometry.false_positive_rate(geometry.capacity) <= rate
    if geometry.capacity < entries:
        assert geometry.false_positive_rate(geometry.capacity + 1) > rate
    elif geometry.size_bytes > 1_000:
        less = fitting(entries, rate, budget_bytes=HEADER_BYTES + geometry.size_bytes * 99 // 100)
        assert less.capacity < entries


@pytest.mark.anyio
async def test_the_fill_is_what_random_resources_meet() -> None:
    """Estimated from the number of keys, measured by the bits, and counted: three ways to the same figure."""
    sketch, draw = MemoryCacheSketch(), random.Random(7)
    names = [f"/{draw.random()}" for _ in range(20_000)]
    for name in names:
        await sketch.report_read(name, expires_at_ms=NOW_MS + 9_000, now_ms=NOW_MS)
    await sketch.report_write(names, now_ms=NOW_MS)
    fill = fill_of(await sketch.snapshot(now_ms=NOW_MS), DEFAULT)
    assert fill.keys == 20_000
    assert fill.estimated <= 0.065
    assert fill.measured == pytest.approx(fill.estimated, rel=0.03)
    assert fill.bits_set == pytest.approx(fill.measured**0.25, rel=0.05)


def test_lifetimes_shrink_while_there_are_too_many_keys_and_grow_again() -> None:
    """Keys follow lifetimes, a while later: the factor settles where there are as many as the filter is made for."""
    factors, keys = LifetimeFactors(), 80_000.0
    for _ in range(200):
        factors.adjust("", keys=int(keys), capacity=20_000)
        keys += 0.2 * (80_000 * factors.of("") - keys)
    assert keys == pytest.approx(20_000, rel=0.15)
    assert factors.of("other") == 1.0
    for _ in range(100):
        factors.adjust("", keys=100, capacity=20_000)
    assert factors.of("") == 1.0
    for _ in range(100):
        factors.adjust("", keys=10**9, capacity=20_000)
    assert factors.of("") == 0.01


@pytest.mark.anyio
async def test_a_look_sets_the_metrics_and_a_saturated_sketch_sets_none_of_lifetimes() -> None:
    sketch, factors, telemetry = MemoryCacheSketch(), LifetimeFactors(), Telemetry()

    def value(name: str, **labels: str) -> float | None:
        return telemetry.families.registry.get_sample_value(f"quaestor_sketch_{name}", labels)

    for name in ("/a", "/b#0a1b2c3d"):
        await sketch.report_read(name, expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    await sketch.report_write(["/a", "/b#0a1b2c3d"], now_ms=NOW_MS)
    await look(sketch, factors, DEFAULT, telemetry, now_ms=NOW_MS)
    assert (value("keys", partition="union"), value("keys", partition="0a1b2c3d")) == (2, 1)
    assert value("fill", partition="union") == pytest.approx(8 / DEFAULT.size_bits)
    assert value("false_positives", partition="union", how="measured") is not None
    assert value("lifetime_factor", partition="union") == 1.0
    await sketch.saturate(NOW_MS + 5_000)
    await look(sketch, factors, DEFAULT, telemetry, now_ms=NOW_MS + 1_000)
    assert (value("removed"), value("fill", partition="union"), factors.of("")) == (2, 1.0, 1.0)


@pytest.mark.anyio
async def test_metrics_of_partitions_are_called_the_same_after_each_start() -> None:
    epoch, telemetry = "0123456789abcdef", Telemetry()
    sketch = MemoryCacheSketch(epoch=epoch)
    names = [f"/a#{epoch}", f"/b#{epoch}0a1b2c3d", f"/c#{epoch}0a1b2c3d"]
    for name in names:
        await sketch.report_read(name, expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    await sketch.report_write(names, now_ms=NOW_MS)
    await look(sketch, LifetimeFactors(), DEFAULT, telemetry, now_ms=NOW_MS)
    values = telemetry.families.registry.get_sample_value
    keys = [values("quaestor_sketch_keys", {"partition": partition}) for partition in ("union", "others", "0a1b2c3d")]
    assert keys == [3, 1, 2]
