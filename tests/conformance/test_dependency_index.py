"""Dependency indexes of every implementation: a handed-out entry is kept until its effects are done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from quaestor.errors import StoreError
from quaestor.model import Dependent
from quaestor.ports import DependencyIndex
from quaestor.redis.clients import SharedClient, shared_client
from quaestor.store import index_memory, index_redis
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.index_redis import RedisIndex
from quaestor.testing import servers
from tests.support import PATIENCE_S

pytestmark = pytest.mark.anyio

NOW_MS = 1_700_000_000_000


def dependent(
    key: str = "http://a/x", *registrations: str, url: str = "http://a/x", until_ms: int = 60_000
) -> Dependent:
    return Dependent(
        key=key,
        registrations=registrations or ("o:1",),
        resource="/x",
        urls=(url,),
        tags=("q1",),
        copies_until_ms=NOW_MS + until_ms,
    )


@pytest.fixture(params=["memory", "redis"])
def index(request: pytest.FixtureRequest, client: SharedClient, prefix: str) -> DependencyIndex:
    return MemoryIndex() if request.param == "memory" else RedisIndex(client, deployment=prefix)


async def test_a_claim_yields_what_depends_and_a_second_one_nothing(index: DependencyIndex) -> None:
    first, second, other = dependent("a", "o:1", "o:2"), dependent("b", "o:2"), dependent("c", "o:3")
    for each in (first, second, other):
        await index.add(each)
    claimed = await index.claim(["o:2"], now_ms=NOW_MS)
    assert sorted(claimed, key=lambda d: d.key) == [first, second]
    assert await index.claim(["o:1", "o:2"], now_ms=NOW_MS) == []
    assert await index.claim(["o:3"], now_ms=NOW_MS) == [other]


async def test_unknown_registrations_and_none_at_all_are_claimed_without_effect(index: DependencyIndex) -> None:
    assert await index.claim(["o:404"], now_ms=NOW_MS) == []
    assert await index.claim([], now_ms=NOW_MS) == []
    await index.settle([])
    await index.settle([dependent()])
    assert await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS) == []


async def test_registrations_are_not_mixed_up_with_their_prefixes(index: DependencyIndex) -> None:
    for registration in ("o:1", "o:10", "o:1 ", "o:", "o:1é"):
        await index.add(dependent(f"key {registration}", registration))
    assert [d.key for d in await index.claim(["o:1"], now_ms=NOW_MS)] == ["key o:1"]
    assert [d.key for d in await index.claim(["o:1é"], now_ms=NOW_MS)] == ["key o:1é"]


async def test_adding_twice_is_adding_once_and_the_latest_expiry_wins(index: DependencyIndex) -> None:
    await index.add(dependent(until_ms=50_000))
    await index.add(dependent(until_ms=90_000))
    await index.add(dependent(until_ms=10_000))
    assert await index.claim(["o:1"], now_ms=NOW_MS) == [dependent(until_ms=90_000)]


async def test_another_url_of_the_same_entry_is_one_more_dependent(index: DependencyIndex) -> None:
    await index.add(dependent(url="http://a/x?1"))
    await index.add(dependent(url="http://a/x?2"))
    claimed = await index.claim(["o:1"], now_ms=NOW_MS)
    assert sorted(d.urls for d in claimed) == [("http://a/x?1",), ("http://a/x?2",)]


async def test_an_unsettled_claim_is_taken_over_after_the_lease_once(index: DependencyIndex) -> None:
    """The claimant died between claim and settle."""
    await index.add(dependent())
    await index.claim(["o:1"], now_ms=NOW_MS)
    assert await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS + 5_000) == []
    taken = await index.reclaim(claimed_before_ms=NOW_MS + 1, now_ms=NOW_MS + 10_000)
    assert taken == [dependent()]
    assert await index.reclaim(claimed_before_ms=NOW_MS + 10_000, now_ms=NOW_MS + 15_000) == []
    assert await index.reclaim(claimed_before_ms=NOW_MS + 10_001, now_ms=NOW_MS + 20_000) == [dependent()]


async def test_a_settled_claim_is_over(index: DependencyIndex) -> None:
    await index.add(dependent("a", "o:1", "o:2"))
    await index.settle(await index.claim(["o:1"], now_ms=NOW_MS))
    assert await index.claim(["o:2"], now_ms=NOW_MS) == []
    assert await index.reclaim(claimed_before_ms=NOW_MS * 2, now_ms=NOW_MS + 1) == []


async def test_a_dependent_added_after_the_claim_of_its_registration_is_not_lost(index: DependencyIndex) -> None:
    """The next claim or reclaim finds an answer that was being sent while its result changed."""
    await index.claim(["o:1"], now_ms=NOW_MS)
    await index.add(dependent("late", "o:0", "o:1"))
    assert await index.claim(["o:1"], now_ms=NOW_MS + 1) == [dependent("late", "o:0", "o:1")]
    await index.add(dependent("later"))
    assert await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS + 2) == [dependent("later")]
    assert await index.claim(["o:1"], now_ms=NOW_MS + 3) == []


async def test_dead_registrations_are_forgotten_after_a_while(index: DependencyIndex) -> None:
    await index.claim(["o:1"], now_ms=NOW_MS)
    later_ms = NOW_MS + index_memory.DEAD_MS + 1
    await index.claim(["o:2"], now_ms=later_ms)
    await index.reclaim(claimed_before_ms=NOW_MS, now_ms=later_ms)
    await index.add(dependent(until_ms=10**9))
    assert await index.reclaim(claimed_before_ms=later_ms, now_ms=later_ms) == []
    assert index_memory.DEAD_MS == index_redis.DEAD_MS


async def test_dependents_without_a_living_copy_are_forgotten_unless_somebody_works_on_them(
    index: DependencyIndex, client: SharedClient, prefix: str
) -> None:
    await index.add(dependent("claimed", "o:1", until_ms=1_000))
    await index.add(dependent("dead", "o:2", until_ms=1_000))
    await index.add(dependent("alive", "o:3", until_ms=9_000))
    await index.claim(["o:1"], now_ms=NOW_MS)
    assert await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS + 5_000) == []
    assert await index.claim(["o:2"], now_ms=NOW_MS + 5_000) == []
    assert [d.key for d in await index.claim(["o:3"], now_ms=NOW_MS + 5_000)] == ["alive"]
    taken = await index.reclaim(claimed_before_ms=NOW_MS + 6_000, now_ms=NOW_MS + 6_000)
    assert sorted(d.key for d in taken) == ["alive", "claimed"]
    await index.settle(taken)
    if isinstance(index, RedisIndex):
        left = {name.decode().rpartition(":")[2] async for name in client.scan_iter(match=f"*{prefix}*")}
        assert left == {"dead", index._caller}
    else:
        assert isinstance(index, MemoryIndex)
        assert len(index) == 0
        assert not index._by_registration


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_full_index_takes_nothing_new_until_there_is_room(kind: str, client: SharedClient, prefix: str) -> None:
    """A full index refuses new dependents; known dependents may be prolonged, and no known dependent is lost."""
    index: DependencyIndex = (
        MemoryIndex(max_dependents=3) if kind == "memory" else RedisIndex(client, deployment=prefix, max_dependents=3)
    )
    for n in range(3):
        await index.add(dependent(f"k{n}", f"o:{n}", until_ms=1_000 * (n + 1)))
    with pytest.raises(StoreError, match="full"):
        await index.add(dependent("k3", "o:3"))
    await index.add(dependent("k2", "o:2", until_ms=9_000))
    assert await index.claim(["o:3"], now_ms=NOW_MS) == []
    await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS + 1_001)
    await index.add(dependent("k3", "o:3"))
    with pytest.raises(StoreError, match="full"):
        await index.add(dependent("k4", "o:4"))
    await index.settle(await index.claim(["o:1"], now_ms=NOW_MS + 1_002))
    await index.add(dependent("k4", "o:4"))
    assert [d.key for d in await index.claim(["o:2", "o:3"], now_ms=NOW_MS + 1_003)] == ["k2", "k3"]


async def test_entries_that_nobody_outside_has_give_way_in_a_full_index_of_one_process() -> None:
    """A stranger who asks for ever new URLs fills it; what may lie in a CDN is not forgotten for that."""
    index = MemoryIndex(max_dependents=3)
    await index.add(dependent("outside", "o:outside"))
    for n in range(50):
        await index.add(replace(dependent(f"k{n}", f"o:{n}"), urls=()))
    assert len(index) == 3
    assert [d.key for d in await index.claim([f"o:{n}" for n in range(50)], now_ms=NOW_MS)] == ["k48", "k49"]
    for n in range(2):
        await index.add(dependent(f"outside{n}", f"o:outside{n}"))
    with pytest.raises(StoreError, match="full"):
        await index.add(dependent("one too many", "o:many"))
    assert [d.key for d in await index.claim(["o:outside"], now_ms=NOW_MS)] == ["outside"]
    assert await index.reclaim(claimed_before_ms=NOW_MS + 1, now_ms=NOW_MS + 2) != []


async def test_long_names_count_as_several_in_the_index_of_one_process() -> None:
    """The index is bounded in bytes, not only in entries, because a URL may have 8 KB."""
    index = MemoryIndex(max_dependents=100)
    for n in range(50):
        await index.add(replace(dependent(f"{n}" + "x" * 8_000, f"o:{n}"), urls=()))
    assert len(index) < 15
    await index.settle(await index.claim([f"o:{n}" for n in range(50)], now_ms=NOW_MS))
    for n in range(100):
        await index.add(dependent(f"k{n}", f"p:{n}"))
    with pytest.raises(StoreError, match="full"):
        await index.add(dependent("one too many", "o:many"))


async def test_traffic_of_a_day_leaves_nothing_behind(
    index: DependencyIndex, client: SharedClient, prefix: str
) -> None:
    """Entries come, expire or are invalidated; what the index holds goes with them, in every structure of it."""
    now_ms = NOW_MS
    for hour in range(24):
        now_ms = NOW_MS + hour * 3_600_000
        for n in range(100):
            await index.add(
                replace(dependent(f"k{n}", f"o:{hour}-{n}", f"o:{hour}-{n}b"), copies_until_ms=now_ms + 1_000 + n)
            )
        await index.settle(await index.claim([f"o:{hour}-{n}" for n in range(50)], now_ms=now_ms))
        await index.reclaim(claimed_before_ms=now_ms - 10_000, now_ms=now_ms + 5_000)
    if isinstance(index, RedisIndex):
        sizes = {name: await client.zcard(name) for name in index.keys[1:]} | {"all": await client.hlen(index.keys[0])}
        assert max(sizes.values()) <= 50, sizes
    else:
        assert isinstance(index, MemoryIndex)
        assert (len(index), len(index._by_registration), len(index._claimed_at_ms), len(index._due)) == (0, 0, 0, 0)
        assert len(index._dead) <= 50


async def test_invalidations_in_a_storm_do_not_fill_the_index(client: SharedClient, prefix: str) -> None:
    """However many registrations die within the time for which each is remembered."""
    memory, shared = MemoryIndex(max_dead=100), RedisIndex(client, deployment=prefix, max_dead=100)
    for n in range(2_000):
        await memory.add(dependent(f"k{n}", f"o:{n}"))
        await memory.settle(await memory.claim([f"o:{n}"], now_ms=NOW_MS))
    for start in range(0, 2_000, 200):
        await shared.claim([f"o:{n}" for n in range(start, start + 200)], now_ms=NOW_MS + start)
    assert len(memory._dead) == await client.zcard(shared.keys[4]) == 100
    assert len(memory._due) <= 1_001, "what was settled does not wait for its expiry"
    for index in (memory, shared):
        await index.add(dependent("late", "o:1999"))
        late = await index.claim(["o:1999"], now_ms=NOW_MS + 2_000)
        assert [d.key for d in late] == ["late"], "the youngest are known"


async def test_more_than_one_script_can_take_is_reclaimed_and_swept_all_the_same(
    client: SharedClient, prefix: str
) -> None:
    index = RedisIndex(client, deployment=prefix)
    for n in range(1_200):
        await index.add(dependent(f"k{n}", f"o:{n % 2}", until_ms=1_000))
    claimed = await index.claim(["o:0"], now_ms=NOW_MS)
    assert len(claimed) == 600
    taken = await index.reclaim(claimed_before_ms=NOW_MS + 1, now_ms=NOW_MS + 5_000)
    assert sorted(d.key for d in taken) == sorted(d.key for d in claimed)
    await index.settle(taken)
    await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS + 5_000)
    assert await client.hlen(index.keys[0]) == 0


async def test_a_prolonged_dependent_outlives_its_first_expiry(index: DependencyIndex) -> None:
    await index.add(dependent(until_ms=1_000))
    await index.add(dependent(until_ms=9_000))
    await index.reclaim(claimed_before_ms=NOW_MS, now_ms=NOW_MS + 5_000)
    assert await index.claim(["o:1"], now_ms=NOW_MS + 5_000) == [dependent(until_ms=9_000)]


async def test_concurrent_claims_share_the_dependents_without_overlap(index: DependencyIndex) -> None:
    for n in range(200):
        await index.add(dependent(f"k{n}", f"o:{n}", "o:all"))
    claims = await asyncio.gather(*(index.claim([f"o:{n}" for n in range(200)], now_ms=NOW_MS) for _ in range(8)))
    keys = [d.key for claim in claims for d in claim]
    assert len(keys) == len(set(keys)) == 200


async def test_every_field_of_a_dependent_survives(index: DependencyIndex) -> None:
    odd = replace(dependent('k"\\\x7f', "o:1"), urls=("http://a/é", "http://b"), tags=(), resource="/?a=[]")
    await index.add(odd)
    assert await index.claim(["o:1"], now_ms=NOW_MS) == [odd]


async def test_a_killed_client_leaves_its_claim_to_others(shared_url: str, prefix: str, client: SharedClient) -> None:
    """Two processes on one Redis; the first one's connection ends between claim and settle."""
    doomed = shared_client(shared_url, timeout_s=PATIENCE_S)
    await RedisIndex(doomed, deployment=prefix).add(dependent())
    assert await RedisIndex(doomed, deployment=prefix).claim(["o:1"], now_ms=NOW_MS) == [dependent()]
    await doomed.aclose()
    survivor = RedisIndex(client, deployment=prefix)
    assert await survivor.claim(["o:1"], now_ms=NOW_MS + 1) == []
    assert await survivor.reclaim(claimed_before_ms=NOW_MS + 1, now_ms=NOW_MS + 2) == [dependent()]


async def test_a_restarted_server_still_knows_claims_and_scripts(tmp_path: Path, prefix: str) -> None:
    """The server forgets its loaded scripts on a restart, but not what was appended to its log."""
    server = servers.redis_server(tmp_path)
    server.start()
    client = Redis.from_url(server.url, protocol=2, socket_timeout=PATIENCE_S)
    try:
        index = RedisIndex(client, deployment=prefix)
        await index.add(dependent())
        await index.claim(["o:1"], now_ms=NOW_MS)
        server.stop()
        with pytest.raises(StoreError):
            await index.claim(["o:1"], now_ms=NOW_MS)
        server.start()
        assert await index.reclaim(claimed_before_ms=NOW_MS + 1, now_ms=NOW_MS + 1) == [dependent()]
    finally:
        await client.aclose()
        server.stop()
