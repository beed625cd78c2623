"""Shared invalidation of every implementation: an entry is claimed, in the sketch and evicted, or none of the three.

On one Redis in one round trip.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

import pybloom_live
import pytest
from redis.asyncio import Redis

from quaestor.cache_sketch import MemoryCacheSketch, RedisCacheSketch
from quaestor.cache_sketch.partitions import in_partition, token_of
from quaestor.errors import DependencyError
from quaestor.model import CachedResponse, Dependent
from quaestor.ports import CacheSketch, DependencyIndex, ResponseStore, SharedInvalidation
from quaestor.redis.clients import SharedClient
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.index_redis import RedisIndex
from quaestor.store.invalidation_script import shared_invalidation
from quaestor.store.invalidation_steps import StepByStep
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.testing import servers
from tests.support import PATIENCE_S

pytestmark = pytest.mark.anyio

NOW_MS = 1_700_000_000_000


@dataclass
class Share:
    index: DependencyIndex
    sketch: CacheSketch
    store: ResponseStore
    effects: SharedInvalidation

    async def cache(self, key: str, *registrations: str, copy: bool = True) -> CachedResponse:
        response = CachedResponse(
            key=key, status=200, headers=(), body=b"x" * 100, etag=b'"e"', stored_at_ms=NOW_MS,
            fresh_until_ms=NOW_MS + 60_000, registrations=registrations, tags=("t",), resource=f"/{key}",
        )  # fmt: skip
        dependent = Dependent(
            key=key,
            registrations=registrations,
            resource=f"/{key}",
            urls=(),
            tags=("t",),
            copies_until_ms=NOW_MS + 60_000,
        )
        await self.index.add(dependent)
        if copy:
            await self.sketch.report_read(f"/{key}", expires_at_ms=NOW_MS + 60_000, now_ms=NOW_MS)
        await self.store.put(response, ttl_ms=60_000)
        return response

    async def reported(self, resource: str) -> bool:
        snapshot = await self.sketch.snapshot(now_ms=NOW_MS + 1)
        return resource in pybloom_live.BloomFilter.fromfile(io.BytesIO(snapshot))


def in_redis(client: SharedClient, deployment: str) -> Share:
    index, store = RedisIndex(client, deployment=deployment), RedisStore(client, deployment=deployment)
    sketch = RedisCacheSketch(client, deployment=deployment)
    return Share(index, sketch, store, shared_invalidation(index=index, sketch=sketch, store=store))


def step_by_step(index: DependencyIndex, sketch: CacheSketch, store: ResponseStore) -> Share:
    return Share(index, sketch, store, StepByStep(index=index, sketch=sketch, store=store))


@pytest.fixture(params=["memory", "redis step by step", "redis"])
def share(request: pytest.FixtureRequest, client: SharedClient, prefix: str) -> Share:
    if request.param == "memory":
        return step_by_step(MemoryIndex(), MemoryCacheSketch(), MemoryStore(budget_bytes=10**6))
    redis = in_redis(client, prefix)
    return redis if request.param == "redis" else step_by_step(redis.index, redis.sketch, redis.store)


async def test_dependent_entries_are_claimed_reported_and_evicted(share: Share) -> None:
    dependent = await share.cache("one", "o:1", "o:2")
    await share.cache("two", "o:2")
    await share.cache("other", "o:3")
    struck = {
        each.dependent.key: each
        for each in await share.effects.claim_and_evict(["o:2"], [dependent], now_ms=NOW_MS + 1)
    }
    assert struck.keys() == {"one", "two"}
    assert struck["one"].evicted
    assert {each.outside_ms for each in struck.values()} == {59_999}
    assert await share.store.get("one") is None
    assert await share.reported("/one")
    assert await share.reported("/two")
    assert not await share.reported("/other")
    assert await share.store.get("other") is not None


async def test_an_entry_nobody_has_in_memory_is_not_said_to_be_evicted_before_it_is(share: Share) -> None:
    await share.cache("one", "o:1")
    [struck] = await share.effects.claim_and_evict(["o:1"], [], now_ms=NOW_MS + 1)
    assert struck.evicted == (await share.store.get("one") is None)


async def test_claims_are_durable_until_they_are_settled(share: Share) -> None:
    dependent = await share.cache("one", "o:1")
    [struck] = await share.effects.claim_and_evict(["o:1"], [dependent], now_ms=NOW_MS + 1)
    assert await share.effects.claim_and_evict(["o:1"], [], now_ms=NOW_MS + 2) == [], "it is somebody's already"
    taken = await share.index.reclaim(claimed_before_ms=NOW_MS + 3, now_ms=NOW_MS + 3)
    assert taken == [struck.dependent]
    await share.index.settle(taken)
    assert await share.index.reclaim(claimed_before_ms=NOW_MS + 9, now_ms=NOW_MS + 9) == []


async def test_an_entry_handed_out_to_nobody_needs_no_purge(share: Share) -> None:
    dependent = await share.cache("one", "o:1", copy=False)
    [struck] = await share.effects.claim_and_evict(["o:1"], [dependent], now_ms=NOW_MS + 1)
    assert struck.outside_ms == 0
    assert not await share.reported("/one")


async def test_the_successor_of_a_dead_entry_is_spared(share: Share) -> None:
    dead = await share.cache("one", "o:1")
    successor = await share.cache("one", "o:2")
    await share.effects.claim_and_evict(["o:1"], [dead], now_ms=NOW_MS + 1)
    assert await share.store.get("one") == successor


async def test_nothing_is_struck_without_effect(share: Share) -> None:
    assert await share.effects.claim_and_evict([], [], now_ms=NOW_MS) == []
    assert await share.effects.claim_and_evict(["o:404"], [], now_ms=NOW_MS) == []


async def test_a_late_dependent_is_claimed_by_a_second_strike(share: Share) -> None:
    """A second strike claims an answer that was being sent while its result changed."""
    await share.effects.claim_and_evict(["o:1"], [], now_ms=NOW_MS)
    await share.cache("late", "o:1")
    assert [each.dependent.key for each in await share.effects.claim_and_evict(["o:1"], [], now_ms=NOW_MS + 1)] == [
        "late"
    ]


@pytest.mark.parametrize("shared_url", ["server"], indirect=True)
async def test_on_one_server_all_of_it_is_one_round_trip(client: SharedClient, prefix: str) -> None:
    share = in_redis(client, prefix)
    await share.effects.claim_and_evict(["warm-up"], [], now_ms=NOW_MS)
    first, second = await share.cache("one", "o:1"), await share.cache("two", "o:2")

    def from_clients(stats: dict[str, dict[str, int]]) -> int:
        return sum(int(s["calls"]) for name, s in stats.items() if name.startswith("cmdstat_eval"))

    before = from_clients(await client.info("commandstats"))
    assert len(await share.effects.claim_and_evict(["o:1", "o:2"], [first, second], now_ms=NOW_MS + 1)) == 2
    assert from_clients(await client.info("commandstats")) == before + 1
    assert await share.store.get("one") is None
    assert await share.store.get("two") is None


async def test_a_sketch_that_was_lost_turns_dark_in_the_same_call(client: SharedClient, prefix: str) -> None:
    share = in_redis(client, prefix)
    dependent = await share.cache("one", "o:1")
    names = [name async for name in client.scan_iter(match=f"*{prefix}:sketch*")]
    await client.delete(*names)
    [struck] = await share.effects.claim_and_evict(["o:1"], [dependent], now_ms=NOW_MS + 1)
    assert struck.outside_ms > 0, "nobody knows what was handed out: purge"
    assert await share.reported("/anything")


async def test_a_server_above_its_memory_limit_still_lets_go_of_what_is_dead(tmp_path: Path, prefix: str) -> None:
    """Were it refused, nothing dead would ever make room."""
    server = servers.redis_server(tmp_path, persistent=False)
    server.start()
    client = Redis.from_url(server.url, protocol=2, socket_timeout=PATIENCE_S)
    try:
        share = in_redis(client, prefix)
        dependent = await share.cache("one", "o:1")
        await client.config_set("maxmemory", "1")
        with pytest.raises(DependencyError):
            await share.store.put(replace(dependent, key="more"), ttl_ms=60_000)
        with pytest.raises(DependencyError):
            await share.cache("more", "o:9")
        [struck] = await share.effects.claim_and_evict(["o:1"], [dependent], now_ms=NOW_MS + 1)
        await share.index.settle([struck.dependent])
        assert await share.store.get("one") is None
        assert await share.reported("/one")
        assert await share.index.reclaim(claimed_before_ms=NOW_MS + 9, now_ms=NOW_MS + 9) == []
    finally:
        await client.aclose()
        server.stop()


async def test_a_write_is_reported_in_the_partition_of_the_copies(share: Share) -> None:
    """Two entries of one resource in different partitions, a third in none: each by itself. A `#` in a key is no partition."""
    tokens = {"one#variant": token_of("a"), "two": token_of("b"), "three#0a1b2c3d": ""}
    for n, (key, token) in enumerate(tokens.items()):
        await share.sketch.report_read(in_partition("/x", token), expires_at_ms=NOW_MS + 60_000 + n, now_ms=NOW_MS)
        dependent = Dependent(
            key=key, registrations=(f"o:{n}",), resource=in_partition("/x", token), urls=(), tags=(),
            copies_until_ms=NOW_MS + 60_000,
        )  # fmt: skip
        await share.index.add(dependent)
    for n in (0, 2):
        [struck] = await share.effects.claim_and_evict([f"o:{n}"], [], now_ms=NOW_MS)
        assert struck.outside_ms == 60_000 + n
    assert (await share.sketch.state(now_ms=NOW_MS)).partitions == {token_of("a")}
    for partition, keys in (("", 2), (token_of("a"), 1), (token_of("b"), 2)):
        body = await share.sketch.snapshot(now_ms=NOW_MS, partition=partition)
        filter_ = pybloom_live.BloomFilter.fromfile(io.BytesIO(body))
        assert ("/x" in filter_, len(filter_)) == (True, keys)
