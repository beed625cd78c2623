"""Distinct query strings, as anybody may append them, through whole apps that share one Redis."""

from __future__ import annotations

from contextlib import AsyncExitStack

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.redis.clients import shared_client
from tests.support import eventually

pytestmark = pytest.mark.anyio

BUDGET_BYTES = 200_000
USED = "quaestor_shared_entries_bytes"


class App:
    """One process's app, whose answers may be kept for a year."""

    def __init__(self, redis_url: str, deployment: str) -> None:
        self.runs = 0
        self.quaestor = Quaestor(
            redis_url=redis_url, deployment=deployment, explicit=True, grid=False, shared_bytes=BUDGET_BYTES,
            memory_bytes=100_000, compression_level=0, early_refresh=0.0,
        )  # fmt: skip

        async def page(request: Request) -> PlainTextResponse:
            self.runs += 1
            return PlainTextResponse("x" * 2_000, headers={"cache-control": "public, max-age=31536000"})

        app = Starlette(routes=[Route("/page", page)])
        app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")

    async def __aenter__(self) -> App:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()
        await self.quaestor.stop()

    async def get(self, query: str) -> str:
        response = await self.http.get(f"/page?{query}")
        assert response.status_code == 200
        return response.headers["cache-status"]

    def used_bytes(self) -> float:
        lines = self.quaestor.telemetry.exposition().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f'{USED}{{of="used"'))


@pytest.mark.usefixtures("patient_redis")
async def test_query_strings_without_a_second_request_do_not_fill_redis(redis_url: str, prefix: str) -> None:
    """A new process finds the entries that another process's clients request, and all entries together stay within the
    budget.
    """
    async with AsyncExitStack() as stack:
        first, other = [await stack.enter_async_context(App(redis_url, prefix)) for _ in range(2)]
        redis = shared_client(redis_url, timeout_s=20)
        stack.push_async_callback(redis.aclose)

        async def hot() -> bool:
            """Requested, and reported by the services that run beside the requests."""
            await first.get("hot")
            return first.used_bytes() > 0

        await eventually(hot)
        for _ in range(20):
            await first.get("hot")
        first.quaestor.parts.read_path.lookup.take_served()
        assert first.quaestor.parts.storage.budget is not None
        await first.quaestor.parts.storage.budget.tell()
        for number in range(400):
            await other.get(f"utm={number}")
        assert other.runs == 400
        assert 0 < await first.quaestor.parts.storage.budget.tell() <= BUDGET_BYTES
        names = [name async for name in redis.scan_iter(match=f"quaestor:{prefix}:entry:*", count=1_000)]
        assert 20 < len(names) < 100
        new = await stack.enter_async_context(App(redis_url, prefix))
        assert "; hit" in await new.get("hot")
        assert new.runs == 0
