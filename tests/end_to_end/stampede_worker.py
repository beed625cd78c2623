"""One app process for tests/end_to_end/test_stampede_processes.py: asks itself for the same page many times at once.

python -m tests.end_to_end.stampede_worker REDIS_URL DEPLOYMENT REQUESTS. Its handler counts its runs in Redis and does not end
before the key DEPLOYMENT:gate exists. Prints the answers, one a line, when all are there.
"""

from __future__ import annotations

import asyncio
import sys

import httpx
from redis.asyncio import Redis
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
from tests.hand_driven import START_MS, HandEngine, reads
from tests.support import eventually

LEASE_MS = 10_000
"""A process that stands still for some seconds is not dead."""
STARTED_WITHIN_S = 90.0
"""Longest wait for the other workers: interpreters that import everything, beside other tests."""


async def main(url: str, deployment: str, requests: int) -> None:
    coalescing.LEASE_MS = LEASE_MS
    # Nobody runs the handler himself because it takes long.
    coalescing.LEASE_WAIT_S = lookup.FOLLOW_DEADLINE_S = 2 * STARTED_WITHIN_S
    redis = Redis.from_url(url, protocol=2)
    shared = RedisStore(redis, deployment=deployment)
    engine = HandEngine(
        store=TwoLevelStore(MemoryStore(budget_bytes=10**6), shared),
        index=RedisIndex(redis, deployment=deployment),
        leases=shared,
    )
    assert engine.clock() == START_MS, "every process has the same time, so what one stored is fresh in all"

    async def page(request: Request) -> Response:
        run = await redis.incr(f"{deployment}:runs")
        reads()

        async def open_() -> bool:
            return bool(await redis.exists(f"{deployment}:gate"))

        await eventually(open_, within_s=2 * STARTED_WITHIN_S)
        return PlainTextResponse(f"run {run}")

    app = QuaestorMiddleware(Starlette(routes=[Route("/a", page)]), quaestor=engine)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.test", timeout=30) as client:
        gets = [asyncio.create_task(client.get("/a")) for _ in range(requests)]
        await redis.incr(f"{deployment}:asking")
        for answer in await asyncio.gather(*gets):
            print(answer.text)
    await engine.read_path.coalescing.settle()
    await redis.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
