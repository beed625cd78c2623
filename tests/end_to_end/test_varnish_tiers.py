"""Varnish before Varnish: an edge that is purged before its shield keeps the old answer, one that is purged after it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import httpx
import pytest

from benchmarks.setups.real_caches import NGINX_PURGE, nginx_server
from quaestor.cdn_adapters import Delivery, FanOut, Nginx, Tiers, VarnishAdapter, varnish_vcl
from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_redis import RedisOutbox
from quaestor.testing.servers import HOST, Server, running, varnish_server
from tests.end_to_end.origin import Answer, Origin
from tests.end_to_end.varnish_site import TOKEN, behind, needs_varnish, path, tagged
from tests.support import PATIENCE_S, eventually

pytestmark = [pytest.mark.anyio, needs_varnish]
__all__ = ["behind", "path"]
needs_nginx = pytest.mark.skipif(
    not NGINX_PURGE.exists(), reason="not on this machine: apt-get install nginx-light libnginx-mod-http-cache-purge"
)

each_count = pytest.mark.parametrize("rounds", [20, pytest.param(1_000, marks=pytest.mark.slow)])


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


@each_count
async def test_a_purge_reaches_the_edge_after_the_shield(
    shield: Server,
    edge: Server,
    behind: Origin,
    web: httpx.AsyncClient,
    path: str,
    redis_url: str,
    prefix: str,
    rounds: int,
) -> None:
    """A write, its purge, and reads all the while: once both tiers were purged, and again a moment later, nothing old is read."""
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    outbox = RedisOutbox(client, deployment=prefix)
    tiers = Tiers("varnish", shield=adapter_of(shield), edge=adapter_of(edge))
    tiers.begin(outbox, telemetry=Telemetry(), repurge_after_ms=30)
    stale = 0
    for number in range(rounds):
        behind.answers[path] = version(number, path)
        wait = await tiers.put(tags=[path], urls=[], until_ms=int(time.time() * 1_000) + 600_000)
        purged = asyncio.create_task(_awaited(wait))
        async with asyncio.timeout(2 * PATIENCE_S):
            while not purged.done():
                await web.get(path)
        await eventually(lambda: settled(outbox))
        stale += (await web.get(path)).text != f"version {number}"
    await tiers.aclose()
    await client.aclose()
    assert stale == 0


async def _awaited(wait: Callable[[], Awaitable[None]]) -> None:
    await wait()


async def settled(outbox: RedisOutbox) -> bool:
    """Return whether answers that were being sent have been purged as well."""
    sizes = [await outbox.size(queue) for queue in await outbox.queues()]
    return not any(size.waiting or size.taken for size in sizes)


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


@needs_nginx
@each_count
async def test_nginx_before_varnish_is_purged_after_it(
    behind: Origin, path: str, redis_url: str, prefix: str, rounds: int
) -> None:
    """The same with an edge that knows no tags: both are purged by URL."""
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    outbox = RedisOutbox(client, deployment=prefix)
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN, fills_caches=True)
    with (
        running(partial(varnish_server, vcl=vcl), "varnish-shield") as shield,
        running(partial(nginx_server, app_port=shield.port), "nginx-edge") as edge,
    ):
        upper = VarnishAdapter(shield.url, token=TOKEN, tags=False, timeout_s=PATIENCE_S)
        lower = FanOut("nginx", [Delivery(Nginx(edge.url, token=TOKEN, timeout_s=PATIENCE_S))])
        tiers = Tiers("nginx", shield=upper, edge=lower)
        tiers.begin(outbox, telemetry=Telemetry(), repurge_after_ms=30)
        texts = []
        async with httpx.AsyncClient(base_url=edge.url, timeout=PATIENCE_S, trust_env=False) as web:
            for number in range(rounds):
                until_s = int(time.time()) + 600
                sent = tiers.lifetime_headers(lives_s=600, until_s=until_s)
                fields = {name.decode(): value.decode() for name, value in sent} | {"cdn-cache-control": "max-age=600"}
                behind.answers[path] = Answer(fields, body=f"version {number}")
                wait = await tiers.put(tags=["t"], urls=[edge.url + path], until_ms=until_s * 1_000)
                purged = asyncio.create_task(_awaited(wait))
                async with asyncio.timeout(2 * PATIENCE_S):
                    while not purged.done():
                        await web.get(path)
                await eventually(lambda: settled(outbox))
                before = len(behind.asked)
                texts.append([(await web.get(path)).text for _ in range(2)])
                assert len(behind.asked) - before <= 1, "nothing is kept, so nothing is shown"
        await tiers.aclose()
    await client.aclose()
    assert texts == [[f"version {number}"] * 2 for number in range(rounds)]


async def test_tiers_that_cannot_be_purged_by_the_same_are_refused() -> None:
    """A tag that the edge does not know would be purged in the shield alone."""
    shield = VarnishAdapter("http://shield:6081", token=TOKEN)
    edge = FanOut("nginx", [Delivery(Nginx("http://edge:8080", token=TOKEN))])
    with pytest.raises(ConfigurationError, match="tags=False"):
        Tiers("nginx", shield=shield, edge=edge)
