"""Four app processes' worth of middleware on one real Valkey, for tests of what they do together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quaestor.middleware import QuaestorMiddleware, lookup
from quaestor.read_path import coalescing
from quaestor.store.index_redis import RedisIndex
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from quaestor.testing import servers
from tests.hand_driven import HandEngine, HandRegistry, reads
from tests.support import PATIENCE_S, eventually

KEY = "http://shop.test/a"


class World:
    """The parts that all workers share. handle: the handler's work, after its run has been counted."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.registry = HandRegistry()
        self.runs = 0
        self.handle: Callable[[], Awaitable[Response]] = self.answer
        self.gate = asyncio.Event()
        self.workers: list[Worker] = []

    async def answer(self) -> Response:
        await self.gate.wait()
        return PlainTextResponse(f"run {self.runs}")

    async def begun(self, runs: int = 1) -> None:
        await eventually(lambda: self.runs >= runs)


class Worker:
    """One app process: its own memory and connections."""

    def __init__(self, world: World) -> None:
        self.redis = Redis.from_url(
            world.url,
            protocol=2,
            socket_timeout=PATIENCE_S,
            socket_connect_timeout=PATIENCE_S,
            retry=Retry(NoBackoff(), 0),
        )
        self.shared = RedisStore(self.redis, deployment="d")
        self.engine = HandEngine(
            store=TwoLevelStore(MemoryStore(budget_bytes=10**6), self.shared),
            index=RedisIndex(self.redis, deployment="d"),
            registry=world.registry,
            leases=self.shared,
        )

        async def page(request: Request) -> Response:
            world.runs += 1
            reads()
            return await world.handle()

        app = QuaestorMiddleware(Starlette(routes=[Route("/{rest:path}", page)]), quaestor=self.engine)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app, raise_app_exceptions=False), base_url="http://shop.test"
        )

    async def get(self, path: str = "/a") -> str:
        answer = await self.client.get(path)
        return answer.text if answer.status_code == 200 else str(answer.status_code)

    @property
    def waiting(self) -> bool:
        """Whether a request waits for another worker."""
        flight = self.engine.read_path.coalescing.under_way(KEY)
        return flight is not None and flight.waited


@pytest.fixture
async def world(valkey: servers.Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    # A worker that stands still for a second or three is not dead, and no request gives up on it.
    monkeypatch.setattr(coalescing, "LEASE_MS", int(1_000 * PATIENCE_S))
    monkeypatch.setattr(coalescing, "LEASE_WAIT_S", PATIENCE_S)
    monkeypatch.setattr(lookup, "FOLLOW_DEADLINE_S", PATIENCE_S)
    world = World(valkey.url)
    world.workers[:] = [Worker(world) for _ in range(4)]
    yield world
    for worker in world.workers:
        await worker.engine.read_path.coalescing.settle()
        await worker.redis.aclose()


def ask(world: World, each: int = 1) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(worker.get()) for worker in world.workers for _ in range(each)]
