"""Subscriptions on pipelines at their bounds: a reader notices missed entries, and every list is right again."""

from __future__ import annotations

import pytest

from quaestor.event_layer import streams
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.ports import StreamEntry
from tests.recovery.following import FOUR, ONE, Opened, Stalling, subscribed
from tests.support import eventually

BOUNDS = PipelineBounds(entries=20)
FAILURES = "quaestor_failures_total"


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [":matched", ":results"])
async def test_changes_trimmed_by_size_before_they_are_read_are_made_good(opened: Opened, kind: str) -> None:
    """A stage, or an app process, that stands still while more comes than its pipeline may hold, long before the retention."""
    layer = Stalling()
    layer.kind = kind
    standing = opened(ONE, seed=41, layer=lambda: layer, bounds=BOUNDS)
    await subscribed(standing, 6)
    standing.write(5)
    await standing.check("before")
    stream = f"quaestor:{{oracle:q0}}{kind}"
    layer.going.clear()
    await eventually(layer.waiting.is_set)
    standing.write(20)
    entries: list[StreamEntry] = []

    def appended() -> bool:
        """Return whether there are entries; not at once, if all earlier ones have been trimmed."""
        entries[:] = MemoryEventLayer.read(layer, {stream: "0"}, count=100_000, block_ms=0)
        return bool(entries)

    await eventually(appended)
    place = entries[-1].offset  # further than anybody has read

    def trimmed() -> bool:
        standing.write()
        first = layer.first_offset(stream)
        return first is not None and first > place

    await eventually(trimmed)
    layer.going.set()
    standing.write(2)
    await standing.check("after")
    failures = standing.grid.telemetry.families.registry.get_sample_value(FAILURES, {"part": "event-layer"})
    assert failures, "somebody has noticed"
    assert all(subscriber.wholes == 1 for subscriber in standing.subscribers)


@pytest.mark.anyio
@pytest.mark.parametrize("shape", [ONE, FOUR], ids=["1x1", "2x2"])
async def test_query_pipelines_may_be_trimmed_under_subscriptions(
    opened: Opened, redis_url: str, prefix: str, shape: object
) -> None:
    """Leases restore all trimmed subscriptions and announcements, while cells and stages are killed."""
    assert isinstance(shape, type(ONE))
    standing = opened(
        shape, seed=42, bounds=BOUNDS, deployment=prefix, layer=lambda: RedisEventLayer(redis_url, prefix),
        subscription_extend_ms=300, subscription_lease_ms=5_000,
    )  # fmt: skip
    await subscribed(standing, 8)
    grid, draw = standing.grid, standing.world.random
    queries = [streams.queries(prefix, column) for column in range(shape.query_partitions)]
    begun = {stream: grid.layer.first_offset(stream) for stream in queries}

    def trimmed() -> bool:
        return all(grid.layer.first_offset(stream) != begun[stream] for stream in queries if begun[stream])

    await eventually(trimmed)
    for number in range(4):
        standing.write(draw.randint(1, 3))
        cell = draw.choice(sorted(grid.cells))
        grid.cells[cell].kill()
        standing.write(draw.randint(1, 3))
        grid.start_cell(cell)
        partition = draw.choice(sorted(grid.stages))
        grid.stages[partition].kill()
        standing.write(draw.randint(1, 3))
        grid.start_stage(partition)
        await standing.until_right()
        standing.write(3)
        await standing.check(f"kill {number}")
    assert all(subscriber.wholes == 1 for subscriber in standing.subscribers)
