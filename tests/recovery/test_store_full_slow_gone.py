"""A store that is full, slow or gone, on a real Valkey: clients get the origin's answer with its own status.

No cache may keep that answer, one failure is counted for it, and caching resumes by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from benchmarks.setups.faults.proxy import Link, Links
from quaestor.cache_sketch import RedisCacheSketch
from quaestor.middleware import QuaestorMiddleware
from quaestor.read_path.coalescing import STORE_BACKOFF_MS
from quaestor.store.index_redis import RedisIndex
from quaestor.store.invalidation_script import RedisInvalidation
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from quaestor.testing import servers
from tests.hand_driven import HandEngine, reads
from tests.support import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

BODY = "x" * 50_000
GIVEN_UP_S = 0.5
"""Time-out where Redis is slow. A full or absent Redis fails at once, and a machine that stands still is no failure of Redis."""


class Process:
    """An app process whose handler answers 200 or 404, by the path. timeout_s: how long it waits for Redis."""

    def __init__(self, url: str, *, timeout_s: float = PATIENCE_S) -> None:
        options: dict[str, Any] = {"protocol": 2, "socket_timeout": timeout_s, "retry": Retry(NoBackoff(), 0)}
        self.redis = Redis.from_url(url, **options)
        self.shared = RedisStore(self.redis, deployment="d", compression_level=0)
        self.index = RedisIndex(self.redis, deployment="d")
        self.memory = MemoryStore(budget_bytes=10**7)
        self.engine = HandEngine(store=TwoLevelStore(self.memory, self.shared), index=self.index, leases=self.shared)
        self.runs = 0

        async def page(request: Request) -> Response:
            self.runs += 1
            reads()
            if "missing" in request.url.path:
                return PlainTextResponse("no such thing", status_code=404)
            return PlainTextResponse(BODY)

        app = QuaestorMiddleware(Starlette(routes=[Route("/{rest:path}", page)]), quaestor=self.engine)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop.test")

    async def get(self, path: str) -> httpx.Response:
        answer = await self.client.get(path)
        if "missing" in path:
            assert (answer.status_code, answer.text) == (404, "no such thing")
        else:
            assert (answer.status_code, answer.text) == (200, BODY)
        return answer

    async def uncached(self, path: str) -> None:
        """The origin's answer, which nobody may keep; and one failure of the store for it."""
        runs, failures = self.runs, self.engine.count("failures", part="store")
        answer = await self.get(path)
        assert answer.headers["cache-control"] == "no-store"
        assert self.runs == runs + 1
        assert self.engine.count("failures", part="store") == failures + 1

    async def cached(self, path: str) -> bool:
        self.engine.clock.now_ms += STORE_BACKOFF_MS + 1
        await self.get(path)
        return "hit" in (await self.get(path)).headers["cache-status"]

    async def resumes(self, path: str) -> None:
        """Wait until the page is cached again by itself; that takes longer where the machine is slower than Redis's
        time-out.
        """
        await eventually(lambda: self.cached(path))


@pytest.fixture
async def process(valkey: servers.Server) -> AsyncIterator[Process]:
    process = Process(valkey.url)
    yield process
    await process.engine.read_path.coalescing.settle()
    await process.redis.aclose()


@pytest.fixture
def link(links: Links, valkey: servers.Server) -> Link:
    return links.to(valkey.port)


async def test_a_full_store_refuses_writes_and_answers_reads(process: Process) -> None:
    """maxmemory with noeviction: writes are refused, reads are answered."""
    await process.get("/before")
    await process.redis.config_set("maxmemory", "1")
    await process.uncached("/a")
    await process.uncached("/missing")
    assert "hit" in (await process.get("/before")).headers["cache-status"]
    await process.redis.config_set("maxmemory", "0")
    await process.resumes("/a")


async def test_full_what_is_dead_makes_room_again(process: Process) -> None:
    """The effects of invalidations may run above the limit, because they free memory."""
    sketch = RedisCacheSketch(process.redis, deployment="d")
    strike = RedisInvalidation(index=process.index, sketch=sketch, store=process.shared)
    for n in range(40):
        await process.get(f"/{n}")
    limit = int((await process.redis.info("memory"))["used_memory"]) - 500_000
    await process.redis.config_set("maxmemory", str(limit))
    await process.uncached("/more")
    entries = process.memory.drop_guarded(list(process.engine.registry.leases))
    now_ms = process.engine.clock()
    struck = await strike.claim_and_evict([r for entry in entries for r in entry.registrations], entries, now_ms=now_ms)
    assert len(struck) == len(entries) >= 30
    await process.index.settle([claim.dependent for claim in struck])

    await process.resumes("/more")


async def test_a_slow_store_is_given_up_once_per_request(link: Link) -> None:
    """The store accepts connections and answers nothing; each request gives it up once, after a time-out."""
    process = Process(f"redis://{servers.HOST}:{link.port}/0", timeout_s=GIVEN_UP_S)
    try:
        await process.resumes("/before")
        link.stall()
        await process.uncached("/a")
        await process.uncached("/missing")
        assert "hit" in (await process.get("/before")).headers["cache-status"], "memory does not ask Redis"
        link.pass_()
        await process.resumes("/a")
    finally:
        link.pass_()
        await process.engine.read_path.coalescing.settle()
        await process.redis.aclose()


async def test_a_slow_store_does_not_serialise_concurrent_requests(link: Link) -> None:
    """Requests that waited for a coalesced one without the store do not try the store one after the other."""
    process = Process(f"redis://{servers.HOST}:{link.port}/0", timeout_s=GIVEN_UP_S)
    try:
        await process.resumes("/before")
        runs = process.runs
        link.stall()
        answers = await asyncio.gather(*(process.get("/a") for _ in range(20)))
        assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
        assert process.runs == runs + 20
    finally:
        link.pass_()
        await process.engine.read_path.coalescing.settle()
        await process.redis.aclose()


async def test_an_absent_store_leaves_answers_in_memory(process: Process, valkey: servers.Server) -> None:
    """While the shared store is gone, memory still answers; new answers are uncached until the store returns."""
    await process.get("/before")
    valkey.kill()
    await process.uncached("/a")
    await process.uncached("/missing")
    assert "hit" in (await process.get("/before")).headers["cache-status"]
    valkey.start()
    await process.resumes("/a")
