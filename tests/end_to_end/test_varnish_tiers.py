"""Varnish before Varnish: an edge that is purged before its shield keeps the old answer, one that is purged after it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import httpx
import pytest

from cdn_adapters import Tiers, VarnishAdapter, varnish_vcl
from quaestor.demo.servers import HOST, Server, running, varnish_server
from quaestor.observability.telemetry import Telemetry
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_redis import RedisOutbox
from tests.end_to_end.origin import Answer, Origin
from tests.end_to_end.varnish_site import TOKEN, behind, needs_varnish, path, tagged
from tests.support import PATIENCE_S, eventually

pytestmark = [pytest.mark.anyio, needs_varnish]
__all__ = ["behind", "path"]

ROUNDS = 20


@pytest.fixture(scope="module")
def shield(behind: Origin) -> Iterator[Server]:
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN, fills_caches=True)
    with running(partial(varnish_server, vcl=vcl), "varnish-shield") as server:
        yield server


@pytest.fixture(scope="module")
def edge(shield: Server) -> Iterator[Server]:
    vcl = varnish_vcl(HOST, shield.port, purge_token=TOKEN)
    with running(partial(varnish_server, vcl=vcl), "varnish-edge") as server:
        yield server


@pytest.fixture
async def web(edge: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=edge.url, timeout=PATIENCE_S, trust_env=False) as client:
        yield client


def adapter_of(server: Server) -> VarnishAdapter:
    return VarnishAdapter(server.url, token=TOKEN, timeout_s=PATIENCE_S)


def version(number: int, tag: str) -> Answer:
    answer = tagged(tag)
    return Answer(answer.headers, body=f"version {number}")


async def test_a_purge_reaches_the_edge_after_the_shield(
    shield: Server, edge: Server, behind: Origin, web: httpx.AsyncClient, path: str, redis_url: str, prefix: str
) -> None:
    """A write, its purge, and reads all the while: once both tiers were purged, and again a moment later, nothing old is read."""
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    outbox = RedisOutbox(client, deployment=prefix)
    tiers = Tiers("varnish", shield=adapter_of(shield), edge=adapter_of(edge))
    tiers.begin(outbox, telemetry=Telemetry(), repurge_after_ms=30)
    stale = 0

    async def settled() -> bool:
        """Whether what was on its way has been purged as well."""
        sizes = [await outbox.size(queue) for queue in await outbox.queues()]
        return not any(size.waiting or size.taken for size in sizes)

    for number in range(ROUNDS):
        behind.answers[path] = version(number, path)
        wait = await tiers.put(tags=[path], urls=[], until_ms=int(time.time() * 1_000) + 600_000)
        purged = asyncio.create_task(_awaited(wait))
        while not purged.done():
            await web.get(path)
        await eventually(settled)
        stale += (await web.get(path)).text != f"version {number}"
    await tiers.aclose()
    await client.aclose()
    assert stale == 0


async def _awaited(wait: Callable[[], Awaitable[None]]) -> None:
    await wait()


async def test_without_the_order_the_edge_keeps_what_the_shield_had(
    shield: Server, edge: Server, behind: Origin, web: httpx.AsyncClient, path: str
) -> None:
    """The race that the order is for: without it, the same ends in staleness."""
    upper, lower = adapter_of(shield), adapter_of(edge)
    behind.answers[path] = version(0, path)
    await web.get(path)
    behind.answers[path] = version(1, path)
    await lower.purge(tags=[path], urls=[])
    await web.get(path)
    await upper.purge(tags=[path], urls=[])
    assert (await web.get(path)).text == "version 0"
    await upper.aclose()
    await lower.aclose()
