"""The Cache Sketch when its Redis fails, comes back empty, or loses a part of it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pybloom_live
import pytest
from redis.asyncio import BlockingConnectionPool, Redis

from quaestor.cache_sketch import RedisCacheSketch
from quaestor.cache_sketch.sizing import HEADER_BYTES, fitting
from quaestor.errors import ConfigurationError, SketchError
from quaestor.observability.telemetry import Telemetry
from quaestor.testing.servers import Server, redis_server, running

pytestmark = pytest.mark.anyio

NOW_MS = 1_700_000_000_000
LIVE_MS = 60_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A Redis that keeps nothing over a restart, of this module's own: the tests kill it."""
    with running(partial(redis_server, persistent=False), "sketch") as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Redis]:
    client = Redis.from_pool(BlockingConnectionPool.from_url(server.url, max_connections=4))
    yield client
    if server.process is None:
        server.start()
    await client.aclose()


async def everything(sketch: RedisCacheSketch, now_ms: int) -> bool:
    filter_ = pybloom_live.BloomFilter.fromfile(io.BytesIO(await sketch.snapshot(now_ms=now_ms)))
    return bool(filter_.bitarray.all())


def make(client: Redis, prefix: str, telemetry: Telemetry | None = None) -> RedisCacheSketch:
    return RedisCacheSketch(client, deployment=prefix, copies_live_ms=LIVE_MS, telemetry=telemetry)


async def test_a_restart_without_data_turns_the_sketch_dark_while_a_copy_may_live(
    server: Server, client: Redis, prefix: str
) -> None:
    """Any operation may meet the loss first; one failure is counted, once."""
    telemetry = Telemetry()
    sketch = make(client, prefix, telemetry)
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    server.kill()
    with pytest.raises(SketchError):
        await sketch.report_write(["/a"], now_ms=NOW_MS + 1)
    server.start()
    assert await sketch.report_write(["/a"], now_ms=NOW_MS + 1) == [LIVE_MS]
    assert await everything(sketch, NOW_MS + LIVE_MS)
    assert not await everything(sketch, NOW_MS + 1 + LIVE_MS)
    assert telemetry.failures.labels("sketch")._value.get() == 1


async def test_a_server_that_goes_back_to_an_older_snapshot_turns_the_sketch_dark(
    server: Server, client: Redis, prefix: str
) -> None:
    """The keys are all there, and what they say is true, but not the whole truth."""
    old, new = make(client, prefix), make(client, prefix)
    await old.report_read("/old", expires_at_ms=NOW_MS + 30_000, now_ms=NOW_MS)
    await new.report_read("/new", expires_at_ms=NOW_MS + 30_000, now_ms=NOW_MS)
    await client.save()
    await new.report_read("/lost", expires_at_ms=NOW_MS + 30_000, now_ms=NOW_MS + 1)
    server.kill()
    server.start()
    await client.connection_pool.disconnect()
    assert not await everything(old, NOW_MS + 2), "it has lost nothing"
    assert await new.report_write(["/lost"], now_ms=NOW_MS + 3) == [LIVE_MS]
    assert await everything(old, NOW_MS + 4)
    (server.folder / "dump.rdb").unlink()


async def test_concurrent_calls_are_no_loss(client: Redis, prefix: str) -> None:
    """Answers come in any order; only fewer calls than answers mean a loss."""
    sketch = make(client, prefix)
    for _ in range(5):
        await asyncio.gather(*(sketch.report_read(f"/{i}", expires_at_ms=NOW_MS + 9, now_ms=NOW_MS) for i in range(40)))
    assert not await everything(sketch, NOW_MS)


async def test_processes_that_are_long_gone_are_forgotten(client: Redis, prefix: str) -> None:
    """Each restart is a new process to the sketch; and one that was idle for long is no loss when it comes back."""
    idle = make(client, prefix)
    await idle.report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    for restart in range(50):
        await make(client, prefix).report_read("/a", expires_at_ms=0, now_ms=NOW_MS + restart * LIVE_MS)
    assert await client.hlen(f"quaestor:{{{prefix}:sketch}}:meta") < 10
    assert not await everything(idle, NOW_MS + 50 * LIVE_MS)


async def test_a_copy_that_lives_longer_than_usual_extends_the_dark(client: Redis, prefix: str) -> None:
    sketch = make(client, prefix)
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 3 * LIVE_MS, now_ms=NOW_MS)
    await client.flushall()
    assert await everything(sketch, NOW_MS + 3 * LIVE_MS - 1)


@pytest.mark.parametrize("lost", ["reads", "stale", "counters", "bits", "meta"])
async def test_the_loss_of_any_key_is_the_loss_of_all(client: Redis, prefix: str, lost: str) -> None:
    """A server that evicts under memory pressure takes single keys: even a process that has just started notices."""
    await make(client, prefix).report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    await client.delete(f"quaestor:{{{prefix}:sketch}}:{lost}")
    assert await everything(make(client, prefix), NOW_MS + 1)


async def test_a_loss_that_a_new_process_has_papered_over_is_noticed_by_the_old(client: Redis, prefix: str) -> None:
    """The new process could not tell a lost sketch from a new deployment; the one that was there before can."""
    old = make(client, prefix)
    await old.report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    await client.flushall()
    new = make(client, prefix)
    assert not await everything(new, NOW_MS + 1)
    assert await old.report_write(["/a"], now_ms=NOW_MS + 2) == [LIVE_MS]
    assert await everything(new, NOW_MS + 3)


async def test_saturating_is_where_a_loss_may_be_noticed_too(client: Redis, prefix: str) -> None:
    sketch = make(client, prefix)
    await sketch.report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    await client.flushall()
    await sketch.saturate(NOW_MS + 10)
    assert await everything(sketch, NOW_MS + LIVE_MS - 1)


async def test_a_new_deployment_starts_empty(client: Redis, prefix: str) -> None:
    assert not await everything(make(client, prefix), NOW_MS)


async def test_processes_share_one_sketch_and_deployments_none(client: Redis, prefix: str) -> None:
    await make(client, prefix).report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    assert await make(client, prefix).report_write(["/a"], now_ms=NOW_MS) == [1_000]
    assert await make(client, prefix + "x").report_write(["/a"], now_ms=NOW_MS) == [0]


async def test_every_operation_translates_the_driver_s_errors(server: Server, client: Redis, prefix: str) -> None:
    sketch = make(client, prefix)
    server.kill()
    with pytest.raises(SketchError):
        await sketch.report_read("/a", expires_at_ms=NOW_MS + 1, now_ms=NOW_MS)
    with pytest.raises(SketchError):
        await sketch.saturate(NOW_MS)
    with pytest.raises(SketchError, match="Redis"):
        await sketch.snapshot(now_ms=NOW_MS)


async def test_a_client_that_decodes_is_refused(server: Server, prefix: str) -> None:
    client = Redis.from_url(server.url, decode_responses=True)
    with pytest.raises(ConfigurationError, match="decode_responses"):
        RedisCacheSketch(client, deployment=prefix)
    await client.aclose()


async def test_keys_of_one_deployment_are_in_one_cluster_slot(client: Redis, prefix: str) -> None:
    await make(client, prefix).saturate(NOW_MS)
    names = [name.decode() async for name in client.scan_iter(match=f"*{prefix}*")]
    assert len(names) == 5
    assert all(name.startswith(f"quaestor:{{{prefix}:sketch}}:") for name in names)


async def test_a_sketch_that_was_lost_while_no_process_ran_is_dark_while_a_copy_may_live(
    server: Server, client: Redis, prefix: str
) -> None:
    """The next process finds nothing and cannot know of the earlier sketch.

    The process after that one learns of the loss.
    """
    options = {"deployment": prefix, "copies_live_ms": LIVE_MS, "distrust_new": True}
    first = RedisCacheSketch(client, **options)  # type: ignore[arg-type]
    assert await everything(first, NOW_MS)
    assert not await everything(first, NOW_MS + LIVE_MS)
    later_ms = NOW_MS + 2 * LIVE_MS
    await first.report_read("/a", expires_at_ms=later_ms + 1_000, now_ms=later_ms)
    server.kill()
    server.start()
    await client.connection_pool.disconnect()
    second, third = (RedisCacheSketch(client, **options) for _ in range(2))  # type: ignore[arg-type]
    assert await second.report_write(["/a"], now_ms=later_ms) == [LIVE_MS]
    assert await everything(third, later_ms + LIVE_MS - 1)
    assert not await everything(third, later_ms + LIVE_MS)


async def test_another_geometry_begins_anew_and_keeps_the_kill_switch(client: Redis, prefix: str) -> None:
    """The counters belong to the old geometry, so everything is dark while a copy may live.

    No bit of the old sketch is left.
    """
    old = make(client, prefix)
    await old.report_read("/a", expires_at_ms=NOW_MS + 1_000, now_ms=NOW_MS)
    await old.report_write(["/a"], now_ms=NOW_MS)
    await old.switch(off=True)
    small = fitting(1_000, 0.01, budget_bytes=14_600)
    new = RedisCacheSketch(client, deployment=prefix, copies_live_ms=LIVE_MS, geometry=small)
    assert await everything(new, NOW_MS)
    assert (await new.state(now_ms=NOW_MS)).off
    assert len(await new.snapshot(now_ms=NOW_MS + LIVE_MS)) == HEADER_BYTES + small.size_bytes
    assert not any((await new.snapshot(now_ms=NOW_MS + LIVE_MS))[HEADER_BYTES:])
