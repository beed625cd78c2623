"""Purges of a real Varnish through the outbox in a real Redis: lost on the way, repeated, and while the cache is restarted."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial

import httpx
import pytest

from benchmarks.setups.faults.proxy import Links
from quaestor.cdn_adapters import BatchLimits, VarnishAdapter, varnish_vcl
from quaestor.observability.telemetry import Telemetry
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_redis import RedisOutbox
from quaestor.testing.servers import HOST, Server, running, varnish_server
from tests.end_to_end.origin import Origin
from tests.end_to_end.varnish_site import TOKEN, behind, needs_varnish, path, seen, tagged, varnish, web
from tests.support import PATIENCE_S, eventually

pytestmark = [pytest.mark.anyio, needs_varnish]
__all__ = ["behind", "path", "varnish", "web"]

LIMITS = BatchLimits(first_retry_ms=20, last_retry_ms=100)


def until_ms() -> int:
    return int(time.time() * 1_000) + 600_000


@pytest.fixture
async def outbox(redis_url: str, prefix: str) -> AsyncIterator[RedisOutbox]:
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    yield RedisOutbox(client, deployment=prefix)
    await client.aclose()


def begun(url: str, outbox: RedisOutbox, *, repurge_after_ms: int = 60_000, tiered: bool = False) -> VarnishAdapter:
    adapter = VarnishAdapter(url, token=TOKEN, timeout_s=PATIENCE_S, limits=LIMITS, tiered=tiered)
    adapter.begin(outbox, telemetry=Telemetry(), repurge_after_ms=repurge_after_ms)
    return adapter


async def test_a_purge_by_tag_and_one_by_url_are_effective_when_they_are_acknowledged(
    varnish: Server, behind: Origin, web: httpx.AsyncClient, path: str, outbox: RedisOutbox
) -> None:
    adapter = begun(varnish.url, outbox)
    for name in ("a", "b", "c"):
        behind.answers[f"{path}/{name}"] = tagged(f"{path}-{name}")
        await web.get(f"{path}/{name}")
    wait = await adapter.put(tags=[f"{path}-a"], urls=[], until_ms=until_ms())
    await wait()
    wait = await adapter.put(tags=[], urls=[f"{varnish.url}{path}/b"], until_ms=until_ms())
    await wait()
    assert [seen(await web.get(f"{path}/{name}")) for name in ("a", "b", "c")] == ["miss", "miss", "hit"]
    await adapter.aclose()


async def test_a_purge_that_was_lost_on_the_way_is_sent_again(
    varnish: Server, behind: Origin, web: httpx.AsyncClient, path: str, outbox: RedisOutbox, links: Links
) -> None:
    """A lost purge is sent again, also by another process if the first has died meanwhile."""
    behind.answers[path] = tagged(f"{path}-t")
    await web.get(path)
    link = links.to(varnish.port)
    link.reset()
    first = begun(f"http://{HOST}:{link.port}", outbox)
    await first.put(tags=[f"{path}-t"], urls=[], until_ms=until_ms())
    assert seen(await web.get(path)) == "hit"
    await first.aclose()
    link.pass_()
    second = begun(f"http://{HOST}:{link.port}", outbox)

    async def gone() -> bool:
        return seen(await web.get(path)) == "miss"

    await eventually(gone)
    await second.aclose()


async def test_a_purge_is_repeated_for_what_was_on_its_way(
    varnish: Server, behind: Origin, web: httpx.AsyncClient, path: str, outbox: RedisOutbox
) -> None:
    """An old answer that the cache stores after the first purge goes by the second one."""
    adapter = begun(varnish.url, outbox, repurge_after_ms=200)
    behind.answers[path] = tagged(f"{path}-t")
    wait = await adapter.put(tags=[f"{path}-t"], urls=[], until_ms=until_ms())
    await wait()
    await web.get(path)  # stored only now: it had left before

    async def gone() -> bool:
        return seen(await web.get(path)) == "miss"

    await eventually(gone)
    await adapter.aclose()


async def test_purges_outlive_a_restart_of_the_cache(behind: Origin, path: str, outbox: RedisOutbox) -> None:
    behind.answers[path] = tagged(f"{path}-t")
    vcl = varnish_vcl(HOST, behind.port, purge_token=TOKEN)
    with running(partial(varnish_server, vcl=vcl), "varnish-stopped") as server:
        port = server.port
        adapter = begun(server.url, outbox)
    wait = await adapter.put(tags=[f"{path}-t"], urls=[], until_ms=until_ms())
    with running(partial(varnish_server, vcl=vcl, port=port), "varnish-restarted"):
        await wait()
        size = await outbox.size(f"varnish http://{HOST}:{port}")
        assert (size.oldest_ms, size.dead) == (None, 0)
        await adapter.aclose()
