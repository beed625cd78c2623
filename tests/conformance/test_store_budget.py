"""The budget of entries in Redis: requested entries stay, entries without a second request leave, and other keys are
untouched.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import structlog
from redis.exceptions import ConnectionError as RedisConnectionError

from quaestor.cache_sketch import RedisCacheSketch
from quaestor.errors import ConfigurationError, StoreError
from quaestor.model import CachedResponse
from quaestor.observability.telemetry import Telemetry
from quaestor.redis.clients import SharedClient, shared_client
from quaestor.settings import Settings
from quaestor.store import budget_reports, entry_codec
from quaestor.store.index_redis import RedisIndex
from quaestor.store.invalidation_script import shared_invalidation
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.redis_budget import HALF_LIFE_MS, USABLE_SHARE, stored_bytes
from quaestor.store.two_level import TwoLevelStore
from quaestor.testing import servers
from tests.support import eventually

pytestmark = pytest.mark.anyio

NOW_MS = 1_700_000_000_000
YEAR_MS = 365 * 86_400_000
BUDGET_BYTES = 1_000_000
BODY = os.urandom(2_000)
TOLERANCE = 1.05
"""Measured bytes may exceed counted bytes: the server's dictionaries grow in steps."""


def entry(key: str, body: bytes = BODY, *registrations: str, cost_ms: int = 20) -> CachedResponse:
    return CachedResponse(
        key=key, status=200, headers=(), body=body, etag=b'"e"', stored_at_ms=NOW_MS, fresh_until_ms=NOW_MS + YEAR_MS,
        registrations=registrations or (f"o:{key}",), tags=("t",), resource=key, cost_ms=cost_ms,
    )  # fmt: skip


def new_store(client: SharedClient, prefix: str, *, clock: Callable[[], int] | None = None) -> RedisStore:
    ticking = count(NOW_MS)
    return RedisStore(
        client,
        deployment=prefix,
        budget_bytes=BUDGET_BYTES,
        clock=clock or (lambda: next(ticking)),
        compression_level=0,
    )


async def put_all(store: RedisStore, entries: Iterable[CachedResponse], at_once: int = 25) -> None:
    waiting = list(entries)
    for start in range(0, len(waiting), at_once):
        await asyncio.gather(
            *(store.put(waiting_entry, ttl_ms=YEAR_MS) for waiting_entry in waiting[start : start + at_once])
        )


async def there(store: RedisStore, keys: Iterable[str]) -> int:
    return sum([await store.client.exists(store.name(key)) for key in keys])


async def measured_bytes(client: SharedClient, prefix: str) -> int:
    """Return the bytes that entries and account occupy, as measured by the server."""
    names = [name async for name in client.scan_iter(match=f"quaestor:*{prefix}*")]
    sizes = await asyncio.gather(*(client.memory_usage(name, samples=0) for name in names if b":writes" not in name))
    return sum(size or 0 for size in sizes)


async def test_a_flood_of_query_strings_leaves_what_is_asked_for_and_the_pipelines(
    client: SharedClient, prefix: str
) -> None:
    """Ten times what the budget holds, each with a lifetime of a year, while others are asked for now and then."""
    store, pipeline = new_store(client, prefix), f"quaestor:{{{prefix}:w0}}:writes"
    await client.xadd(pipeline, {"d": "write"})
    valuable = [f"valuable {number}" for number in range(100)]
    await put_all(store, map(entry, valuable))
    for key in valuable:
        store.used(key, 20)
    await store.budget.tell()
    for number in range(0, 3_000, 300):
        await put_all(store, (entry(f"flood {number + more}", cost_ms=200) for more in range(300)))
        assert await store.budget.tell() <= BUDGET_BYTES
        assert await measured_bytes(client, prefix) <= BUDGET_BYTES * TOLERANCE
    assert await there(store, valuable) == len(valuable)
    assert await client.xlen(pipeline) == 1
    assert await there(store, [f"flood {number}" for number in range(3_000)]) > 50, "what room is left is used"


async def test_explicit_entries_have_the_same_budget_and_lie_there_for_a_day_at_most(
    client: SharedClient, prefix: str
) -> None:
    store = new_store(client, prefix)
    explicit = [replace(entry(f"explicit {number}"), registrations=()) for number in range(600)]
    await put_all(store, explicit)
    assert await store.budget.tell() <= BUDGET_BYTES
    assert 0 < await there(store, (write.key for write in explicit)) < 600
    assert 0 < await client.pttl(store.name("explicit 599")) <= 86_400_000


async def test_a_new_entry_has_time_to_collect_hits(client: SharedClient, prefix: str) -> None:
    """A new entry stays during a flood, although all kept entries have hits. Any process may report its hits."""
    first, other = new_store(client, prefix), new_store(client, prefix)
    old = [f"old {number}" for number in range(500)]
    await put_all(first, map(entry, old))
    for key in old:
        first.used(key, 3)
    await first.budget.tell()
    await first.put(entry("new"), ttl_ms=YEAR_MS)
    await put_all(first, (entry(f"flood {number}") for number in range(10)))
    two_level = TwoLevelStore(MemoryStore(budget_bytes=10**6), other)
    assert await two_level.get("new") == entry("new")
    two_level.used("new", 50)
    await other.budget.tell()
    await put_all(first, (entry(f"flood {number}") for number in range(10, 500)))
    assert await first.get("new") == entry("new")


async def test_old_demand_counts_less_than_new_demand(client: SharedClient, prefix: str) -> None:
    """Entries with many requests long ago make room for entries that are requested now."""
    now_ms = NOW_MS
    store = new_store(client, prefix, clock=lambda: now_ms)
    before, now = ([f"{when} {number}" for number in range(350)] for when in ("before", "now"))
    for keys in (before, now):
        await put_all(store, map(entry, keys))
        for key in keys:
            store.used(key, 100)
        await store.budget.tell()
        now_ms += 20 * HALF_LIFE_MS if keys is before else 0
        if keys is before:
            kept = await there(store, before)
    assert kept > 250
    await put_all(store, (entry(f"flood {number}") for number in range(200)))
    assert await there(store, now) > 250
    assert await there(store, before) < 100


@pytest.mark.parametrize("size", [BUDGET_BYTES, BUDGET_BYTES // 2])
async def test_one_enormous_answer_does_not_drive_out_what_is_asked_for(
    client: SharedClient, prefix: str, size: int
) -> None:
    telemetry = Telemetry()
    store = RedisStore(
        client, deployment=prefix, budget_bytes=BUDGET_BYTES, compression_level=0, telemetry=telemetry, clock=lambda: NOW_MS
    )  # fmt: skip
    keys = [f"k{number}" for number in range(250)]
    await put_all(store, map(entry, keys))
    for key in keys:
        store.used(key, 10)
    await store.budget.tell()
    assert await there(store, keys) == 250
    await store.put(entry("enormous", b"x" * size, cost_ms=10**9), ttl_ms=YEAR_MS)
    assert await store.get("enormous") is None
    assert await there(store, keys) == 250
    assert telemetry.stores.refused.labels("redis", "demand")._value.get() == 1


async def test_an_evicted_entry_is_no_longer_counted_but_its_successor_is(client: SharedClient, prefix: str) -> None:
    """Both ways of evicting keep the count right, even if repeated or reported late."""
    store = new_store(client, prefix)
    index, sketch = RedisIndex(client, deployment=prefix), RedisCacheSketch(client, deployment=prefix)
    effects = shared_invalidation(index=index, sketch=sketch, store=store)
    first, second, later = entry("one"), entry("two"), entry("one", BODY, "o:later")
    await put_all(store, [first, second])
    both = await store.budget.tell()
    await effects.claim_and_evict(["o:one"], [first], now_ms=NOW_MS)
    assert await store.budget.tell() == both // 2
    await store.put(later, ttl_ms=YEAR_MS)
    await effects.claim_and_evict(["o:one"], [first], now_ms=NOW_MS)
    await store.evict([first, second])
    assert await store.budget.tell() == both // 2
    assert await store.get("one") == later
    await store.evict([later])
    assert await store.budget.tell() == 0


async def test_expired_entries_are_no_longer_counted(client: SharedClient, prefix: str) -> None:
    now_ms = NOW_MS
    store = new_store(client, prefix, clock=lambda: now_ms)
    await store.put(entry("short"), ttl_ms=60_000)
    assert await store.budget.tell() > len(BODY)
    now_ms += 60_000
    assert await store.budget.tell() == 0


async def test_a_replaced_entry_counts_once_and_everything_is_forgotten_with_everything(
    client: SharedClient, prefix: str
) -> None:
    store = new_store(client, prefix)
    for size in (10, 5_000, 2_000):
        await store.put(entry("one", b"x" * size), ttl_ms=YEAR_MS)
    alone = await store.budget.tell()
    assert 2_000 < alone < 5_000
    await store.clear()
    assert await store.budget.tell() == 0
    assert await store.get("one") is None


async def test_entries_take_about_the_bytes_counted_for_them(client: SharedClient, prefix: str) -> None:
    store = new_store(client, prefix)
    for size in (0, 100, 700, 3_000, 20_000, 70_000):
        await store.clear()
        await put_all(
            store, (entry(f"{size} {number}", os.urandom(size)) for number in range(200 if size < 1_000 else 10))
        )
        counted, measured = await store.budget.tell(), await measured_bytes(client, prefix)
        assert 0.5 * counted < measured <= counted * TOLERANCE
    assert stored_bytes(1) < stored_bytes(100) < stored_bytes(1_000_000) < 1_300_000


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="shared_bytes=0 is below the lowest value 1"):
        Settings(shared_bytes=0)


async def test_on_a_cluster_what_has_to_leave_while_it_is_being_stored_does_not_stay_uncounted(
    redis_cluster_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Account and entry lie on two servers: another process may find that the entry has to leave before it is there."""
    async with aclosing(shared_client(redis_cluster_url, timeout_s=30)) as client:
        store, key = new_store(client, prefix), "GET /raced"
        set_ = client.set

        async def set_late(name: str, data: bytes, **options: Any) -> Any:
            digest = name.rpartition("{")[2].rstrip("}")
            await store.budget.forget([(digest, entry_codec.guard(entry(key).registrations))])
            await client.unlink(name)
            return await set_(name, data, **options)

        with monkeypatch.context() as patched:
            patched.setattr(client, "set", set_late)
            await store.put(entry(key), ttl_ms=YEAR_MS)
        assert await there(store, [key]) == 0
        assert await store.budget.tell() == 0
        await store.put(entry(key), ttl_ms=YEAR_MS)
        assert await there(store, [key]) == 1
        assert await store.budget.tell() > 0


async def test_on_a_cluster_an_entry_that_could_not_be_stored_is_not_counted(
    redis_cluster_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(shared_client(redis_cluster_url, timeout_s=30)) as client:
        store = new_store(client, prefix)

        async def refused(*_: Any, **__: Any) -> Any:
            raise RedisConnectionError("gone")

        monkeypatch.setattr(client, "set", refused)
        with pytest.raises(StoreError):
            await store.put(entry("GET /refused"), ttl_ms=YEAR_MS)
        assert await store.budget.tell() == 0


@pytest.mark.usefixtures("patient_redis")
async def test_a_server_with_less_memory_than_the_budget_is_filled_and_goes_on_taking_entries(
    redis_url: str, prefix: str
) -> None:
    """The limit follows the server's memory, and what is above it leaves also while the server refuses to write."""
    async with aclosing(shared_client(redis_url, timeout_s=20)) as client:
        store = new_store(client, prefix)
        held = int((await client.info("memory"))["used_memory"])
        await client.config_set("maxmemory", str(held + BUDGET_BYTES // 2))
        try:
            refused = 0
            for number in range(600):
                try:
                    await store.put(entry(f"/{number}"), ttl_ms=YEAR_MS)
                except StoreError:
                    refused += 1
            assert refused > 100
            while await store.budget.fit(await store.budget.tell()):
                pass
            assert store.budget.limit_bytes < BUDGET_BYTES // 2
            for number in range(600, 900):
                await store.put(entry(f"/{number}"), ttl_ms=YEAR_MS)
            await client.config_set("maxmemory", "0")
            await store.budget.fit(await store.budget.tell())
            assert store.budget.limit_bytes == BUDGET_BYTES
        finally:
            await client.config_set("maxmemory", "0")
            await store.clear()


async def test_a_server_with_less_memory_than_the_budget_is_reported_once(
    valkey: servers.Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_reports, "EVERY_S", 0.01)
    telemetry, rounds = Telemetry(), count()
    begun = 0

    async with aclosing(shared_client(valkey.url, timeout_s=20)) as client:
        budget = new_store(client, prefix).budget
        tell = budget.tell

        async def counted() -> int:
            nonlocal begun
            begun = next(rounds)
            return await tell()

        async def reports_of_three_rounds() -> list[Any]:
            until = begun + 4
            await eventually(lambda: begun >= until)
            return [report for report in log if report["event"] == "store.redis_small"]

        monkeypatch.setattr(budget, "tell", counted)
        with structlog.testing.capture_logs() as log:
            accounting = asyncio.create_task(budget_reports.keep_accounting(budget, telemetry))
            try:
                assert await reports_of_three_rounds() == []
                held = int((await client.info("memory"))["used_memory"])
                await client.config_set("maxmemory", str(int((held + BUDGET_BYTES / 2) / USABLE_SHARE)))
                [report] = await reports_of_three_rounds()
            finally:
                accounting.cancel()
                await asyncio.wait([accounting])
    assert 0 < report["usable_bytes"] < report["shared_bytes"] == BUDGET_BYTES
    assert "maxmemory" in report["remedy"]
    gauge = telemetry.families.registry.get_sample_value("quaestor_shared_entries_bytes", {"of": "budget"})
    assert gauge == budget.limit_bytes < BUDGET_BYTES
