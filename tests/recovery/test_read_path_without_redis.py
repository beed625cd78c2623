"""The shared store and the dependency index on a real Valkey that is killed and comes back, between two app processes' worth of
middleware: the origin answers, nothing stale is served, caching resumes by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
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

from quaestor.middleware import QuaestorMiddleware
from quaestor.read_path.coalescing import STORE_BACKOFF_MS
from quaestor.store.index_redis import RedisIndex
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from quaestor.testing import servers
from tests.hand_driven import HandEngine, HandRegistry, TaggingCdn, reads
from tests.support import PATIENCE_S

pytestmark = pytest.mark.anyio


class Process:
    """One app process: its own memory and connections, the shared registry and Redis."""

    def __init__(self, client: Redis, registry: HandRegistry, deployment: str) -> None:
        store = TwoLevelStore(MemoryStore(budget_bytes=10**6), RedisStore(client, deployment=deployment))
        # Where the order of parameters does not matter, an entry has many spellings.
        self.engine = HandEngine(
            store=store, index=RedisIndex(client, deployment=deployment), registry=registry, sort_query=True
        )
        self.runs = 0

        async def page(request: Request) -> Response:
            self.runs += 1
            reads()
            return PlainTextResponse("x")

        app = Starlette(routes=[Route("/{rest:path}", page)])
        middleware = QuaestorMiddleware(app, quaestor=self.engine, cdn=[TaggingCdn()])
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=middleware), base_url="http://shop.test")

    async def get(self, path: str = "/a") -> tuple[str, str]:
        """Return the Cache-Control and the Cache-Status of the answer."""
        answer = await self.client.get(path)
        assert (answer.status_code, answer.text) == (200, "x")
        return answer.headers["cache-control"], answer.headers["cache-status"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.Server]:
    server = servers.redis_server(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def two(server: servers.Server) -> AsyncIterator[tuple[Process, Process]]:
    # A dead server refuses at once; a machine that stands still is waited for.
    options: dict[str, Any] = {"protocol": 2, "socket_timeout": PATIENCE_S, "retry": Retry(NoBackoff(), 0)}
    clients = [Redis.from_url(server.url, **options) for _ in range(2)]
    registry = HandRegistry()
    yield Process(clients[0], registry, "d"), Process(clients[1], registry, "d")
    for client in clients:
        await client.aclose()


async def test_an_answer_that_one_process_stored_is_a_hit_in_the_other(two: tuple[Process, Process]) -> None:
    first, other = two
    await first.get()
    assert "hit" in (await other.get())[1]
    assert other.runs == 0


async def test_an_entry_whose_registration_died_is_not_served_by_any_process(two: tuple[Process, Process]) -> None:
    first, other = two
    await first.get()
    await other.get("/b")
    first.engine.registry.kill()
    for process in (other, first):
        await process.get()
        assert process.runs >= 1
    assert "hit" in (await first.get())[1]


async def test_an_entry_that_was_evicted_is_gone_in_the_other_process_too(two: tuple[Process, Process]) -> None:
    """The claimant's eviction empties the shared store; a dead entry in another process's memory is never served."""
    first, other = two
    await first.get()
    await other.get()
    first.engine.registry.kill()
    dependents = await first.engine.index.claim(list(first.engine.registry.dead), now_ms=first.engine.clock())
    await first.engine.store.evict(dependents)
    assert await other.engine.store.get("http://shop.test/a") is not None  # in memory, dead
    assert "stored" in (await other.get())[1]


async def test_every_process_indexes_the_urls_that_it_hands_out(two: tuple[Process, Process]) -> None:
    first, other = two
    await first.get("/a?x=1&y=2")
    await other.get("/a?y=2&x=1")
    dependents = await first.engine.index.claim(["test:1"], now_ms=first.engine.clock())
    assert sorted(url for dependent in dependents for url in dependent.urls) == [
        "http://shop.test/a?x=1&y=2",
        "http://shop.test/a?y=2&x=1",
    ]


async def test_while_redis_is_gone_the_origin_answers_and_nobody_may_keep_it(
    two: tuple[Process, Process], server: servers.Server
) -> None:
    first, other = two
    await first.get()
    server.kill()
    assert "hit" in (await first.get())[1], "memory still holds it, and its registration lives"
    for _ in range(2):
        assert (await first.get("/b"))[0] == "no-store"
        assert (await other.get("/a"))[0] == "no-store"
    assert (first.runs, other.runs) == (3, 2)
    assert first.engine.count("failures", part="store") == 1, "the second request finds out that it need not ask"
    assert first.engine.count("uncacheable", reason="failed") == 2
    leases = first.engine.registry.leases
    assert all(until_ms > first.engine.clock() for until_ms in leases.values()), "perhaps stored: has to be guarded"
    server.start()
    for process in two:
        process.engine.clock.now_ms += STORE_BACKOFF_MS + 1
        await process.get("/b")
        assert "hit" in (await process.get("/b"))[1]


async def test_a_new_spelling_while_redis_is_gone_goes_out_without_leave_to_keep(
    two: tuple[Process, Process], server: servers.Server
) -> None:
    first, _ = two
    await first.get("/a?x=1&y=2")
    server.kill()
    may, how = await first.get("/a?y=2&x=1")
    assert (may, first.runs) == ("no-store", 1)
    assert "hit" in how
