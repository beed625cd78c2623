"""Metrics of requests, layer by layer: they add up."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from anyio.lowlevel import checkpoint
from redis.asyncio import Redis

from quaestor.middleware import QuaestorMiddleware
from quaestor.store.index_redis import RedisIndex
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.size_metrics import keep_measuring
from quaestor.store.two_level import TwoLevelStore
from tests.hand_driven import HandEngine, HandRegistry, reads
from tests.support import eventually

pytestmark = pytest.mark.anyio


class Page:
    """One page, which stays the same until a test changes it."""

    def __init__(self, engine: HandEngine) -> None:
        self.engine = engine
        self.body = b"1"
        self.headers: list[tuple[bytes, bytes]] = []
        self.runs = 0
        self.go = asyncio.Event()
        self.go.set()

        async def page(scope: Any, receive: Any, send: Any) -> None:
            self.runs += 1
            reads()
            await self.go.wait()
            await send({"type": "http.response.start", "status": 200, "headers": self.headers})
            await send({"type": "http.response.body", "body": self.body})

        app = QuaestorMiddleware(page, quaestor=engine)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")

    async def get(self, **headers: str) -> str:
        return (await self.http.get("/", headers=headers)).headers["cache-status"]

    def sums(self) -> None:
        """Every closer break-down adds up to its total."""
        count = self.engine.count
        layers = sum(count("hits", layer=layer) for layer in ("memory", "redis", "stale"))
        assert layers == count("requests", outcome="hit")
        registry = self.engine.telemetry.families.registry
        samples = [s for m in registry.collect() for s in m.samples if s.name == "quaestor_misses_total"]
        assert sum(sample.value for sample in samples) == count("requests", outcome="miss")
        assert registry.get_sample_value("quaestor_miss_seconds_count") == count("requests", outcome="miss")


async def test_a_miss_says_why_and_a_hit_from_where() -> None:
    page = Page(HandEngine())
    await page.get()
    await page.get()
    await page.get(**{"if-none-match": '"x"'})
    count = page.engine.count
    assert (count("misses", reason="absent"), count("hits", layer="memory")) == (1, 2)
    page.engine.clock.now_ms += 60_001
    await page.get()
    assert count("misses", reason="expired") == 1
    assert count("evictions", reason="expired") == 1
    page.sums()


@pytest.mark.parametrize(("changes", "answer"), [(True, "changed"), (False, "same")])
async def test_an_answer_that_an_invalidation_did_not_change_is_counted(changes: bool, answer: str) -> None:
    page = Page(HandEngine())
    await page.get()
    page.engine.registry.kill()
    page.body = b"2" if changes else b"1"
    assert "fwd" in await page.get()
    count = page.engine.count
    assert count("misses", reason="invalidated") == 1
    assert count("reexecuted", precision="unknown", answer=answer) == 1
    page.sums()


async def test_stale_answers_are_hits_of_their_own() -> None:
    page = Page(HandEngine())
    page.headers = [(b"cache-control", b"stale-while-revalidate=30")]
    await page.get()
    page.engine.clock.now_ms += 60_001
    assert "hit" in await page.get()
    assert page.engine.count("hits", layer="stale") == 1
    await eventually(lambda: page.engine.count("misses", reason="refresh") == 1)
    page.sums()


async def test_waiting_requests_are_counted_by_the_holder() -> None:
    page = Page(HandEngine())
    page.go.clear()
    first = asyncio.ensure_future(page.get())
    await eventually(lambda: page.runs == 1)
    second = asyncio.ensure_future(page.get())
    for _ in range(20):
        await checkpoint()
    page.go.set()
    await asyncio.gather(first, second)
    assert page.runs == 1
    page.sums()
    assert page.engine.count("coalesced", where="process") == page.engine.count("requests", outcome="coalesced") == 1


async def test_hits_out_of_the_shared_store_and_out_of_memory_are_counted_apart(redis_url: str, prefix: str) -> None:
    client = Redis.from_url(redis_url)
    shared, registry = RedisStore(client, deployment=prefix), HandRegistry()
    pages = [
        Page(HandEngine(store=TwoLevelStore(MemoryStore(budget_bytes=10**6), shared), registry=registry, leases=shared))
        for _ in range(2)
    ]
    await pages[0].get()
    await pages[1].get()
    await pages[1].get()
    count = pages[1].engine.count
    assert (count("hits", layer="redis"), count("hits", layer="memory")) == (1, 1)
    for page in pages:
        await page.engine.read_path.coalescing.settle()
        page.sums()
    await client.aclose()


async def test_contents_of_redis_are_measured(redis_url: str, prefix: str) -> None:
    client = Redis.from_url(redis_url)
    index = RedisIndex(client, deployment=prefix)
    page = Page(HandEngine(index=index))
    await page.get()
    value = page.engine.telemetry.families.registry.get_sample_value
    measuring = asyncio.create_task(keep_measuring(client, index, page.engine.telemetry))
    await eventually(lambda: value("quaestor_store_entries", {"level": "redis"}) == 1)
    assert (value("quaestor_store_bytes", {"level": "redis"}) or 0) > 100_000
    measuring.cancel()
    await client.aclose()


async def test_an_entry_that_memory_does_not_take_is_counted() -> None:
    refused: list[str] = []
    left: list[str] = []
    store = MemoryStore(budget_bytes=40_000, on_left=lambda _, why: left.append(why), on_refused=refused.append)
    page = Page(HandEngine(store=store, memory_bytes=40_000))
    page.body = b"x" * 50_000
    await page.get()
    assert (refused, left) == (["too-large"], [])
