"""Response stores of every implementation: a look-up never returns the response of another key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.ports import ResponseStore
from quaestor.redis.clients import SharedClient
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from quaestor.testing import servers
from tests.support import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

ENTRY = CachedResponse(
    key="http://a/x?b=1",
    status=200,
    headers=((b"content-type", b"a/b"), (b"link", b"1"), (b"link", b"2")),
    body=b"\x00body",
    etag=b'"e"',
    stored_at_ms=1_700_000_000_000,
    fresh_until_ms=1_700_000_060_000,
    registrations=("o:1",),
    tags=("q1",),
    resource="/x?b=1",
)


@pytest.fixture(params=["memory", "redis", "two-level"])
def store(request: pytest.FixtureRequest, client: SharedClient, prefix: str) -> ResponseStore:
    memory, shared = MemoryStore(budget_bytes=10**6), RedisStore(client, deployment=prefix)
    return {"memory": memory, "redis": shared, "two-level": TwoLevelStore(memory, shared)}[request.param]


async def test_an_entry_is_returned_as_it_was_stored(store: ResponseStore) -> None:
    assert await store.get(ENTRY.key) is None
    await store.put(ENTRY, ttl_ms=60_000)
    assert await store.get(ENTRY.key) == ENTRY
    assert await store.get(ENTRY.key + "0") is None


async def test_a_later_entry_takes_the_place_of_an_earlier_one(store: ResponseStore) -> None:
    await store.put(ENTRY, ttl_ms=60_000)
    later = replace(ENTRY, body=b"later", registrations=("o:2",))
    await store.put(later, ttl_ms=60_000)
    assert await store.get(ENTRY.key) == later


async def test_evicted_entries_are_gone_and_others_stay(store: ResponseStore) -> None:
    other = replace(ENTRY, key="http://a/other")
    await store.put(ENTRY, ttl_ms=60_000)
    await store.put(other, ttl_ms=60_000)
    await store.evict([ENTRY, replace(ENTRY, key="http://a/never-stored")])
    await store.evict([])
    assert await store.get(ENTRY.key) is None
    assert await store.get(other.key) == other


async def test_evicting_an_entry_spares_its_successor(store: ResponseStore) -> None:
    """An eviction that comes late must not cost the entry that has taken the dead one's place."""
    successor = replace(ENTRY, body=b"later", registrations=("o:2",))
    await store.put(successor, ttl_ms=60_000)
    await store.evict([ENTRY])
    assert await store.get(ENTRY.key) == successor


async def test_clear_removes_everything_of_this_deployment(
    store: ResponseStore, client: SharedClient, prefix: str
) -> None:
    neighbour = RedisStore(client, deployment=f"{prefix}-neighbour")
    await neighbour.put(ENTRY, ttl_ms=3_600_000)
    for n in range(1200):
        await store.put(replace(ENTRY, key=str(n)), ttl_ms=3_600_000)
    await store.clear()
    assert await store.get("0") is None
    assert await store.get("1199") is None
    assert await neighbour.get(ENTRY.key) == ENTRY


async def test_entries_in_redis_expire_by_themselves(client: SharedClient, prefix: str) -> None:
    store = RedisStore(client, deployment=prefix)
    await store.put(ENTRY, ttl_ms=30)

    async def gone() -> bool:
        return await store.get(ENTRY.key) is None

    await eventually(gone)
    await store.put(ENTRY, ttl_ms=0)
    assert await store.get(ENTRY.key) is None


async def test_an_entry_that_another_process_stored_is_taken_into_memory(client: SharedClient, prefix: str) -> None:
    shared = RedisStore(client, deployment=prefix)
    mine, theirs = (TwoLevelStore(MemoryStore(budget_bytes=10**6), shared) for _ in range(2))
    await theirs.put(ENTRY, ttl_ms=60_000)
    assert mine.resident(ENTRY.key) is None
    assert await mine.get(ENTRY.key) == ENTRY
    resident = mine.resident(ENTRY.key)
    assert resident is not None
    assert resident.response == ENTRY
    assert resident.urls == ()


async def test_a_damaged_or_foreign_value_is_no_entry(client: SharedClient, prefix: str) -> None:
    store = RedisStore(client, deployment=prefix)
    await store.put(ENTRY, ttl_ms=60_000)
    [name] = [name async for name in client.scan_iter(match=f"*{prefix}:entry:*")]
    for damaged in (b"", b"QE\x01", b"QE\x02" + b"x" * 99):
        await client.set(name, damaged)
        assert await store.get(ENTRY.key) is None
    await store.put(replace(ENTRY, key="other"), ttl_ms=60_000)
    [other] = [n async for n in client.scan_iter(match=f"*{prefix}:entry:*") if n != name]
    await client.set(name, await client.get(other))
    assert await store.get(ENTRY.key) is None


async def test_a_server_that_is_gone_is_a_store_error_and_leaves_nothing_in_memory(tmp_path: Path, prefix: str) -> None:
    server = servers.redis_server(tmp_path)
    server.start()
    client = Redis.from_url(server.url, socket_timeout=PATIENCE_S)
    store = TwoLevelStore(MemoryStore(budget_bytes=10**6), RedisStore(client, deployment=prefix))
    await store.put(ENTRY, ttl_ms=60_000)
    server.kill()
    try:
        with pytest.raises(StoreError):
            await store.get("other")
        with pytest.raises(StoreError):
            await store.put(replace(ENTRY, key="k2"), ttl_ms=60_000)
        assert store.resident("k2") is None
        with pytest.raises(StoreError):
            await store.evict([ENTRY])
        assert store.resident(ENTRY.key) is None
        with pytest.raises(StoreError):
            await store.clear()
    finally:
        await client.aclose()
