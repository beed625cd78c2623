"""The whole way on a real Varnish: a write by anybody purges what it has changed, also what is on its way just then.

The races of small answers are run without the protection too: then an old answer stays in the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from quaestor.demo.servers import Server, free_port, running
from quaestor.invalidation.effects.canary import Level, canary_tag, check
from tests.end_to_end.cached_site import CachedSite, cached_site, nothing
from tests.end_to_end.real_caches import CACHES, RealCache
from tests.end_to_end.varnish_site import needs_varnish
from tests.faults.proxy import Link, Links
from tests.support import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(
        "kind", [pytest.param(CACHES["varnish"], marks=needs_varnish)], ids=["varnish"], scope="module"
    ),
]
TOGETHER = 5
"""Answers that race at the same time."""
each_count = pytest.mark.parametrize("batches", [1, pytest.param(20, marks=pytest.mark.slow)])
"""A hundred answers when it counts."""
NEVER_MS = 3_600_000
LARGE = 600_000
"""More than all buffers on the way hold."""


@pytest.fixture(scope="module")
def app_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def link(app_port: int) -> Iterator[Link]:
    links = Links()
    yield links.to(app_port, receive_buffer=16 * 1024)
    links.close()


@pytest.fixture(scope="module")
def cache(kind: RealCache, link: Link) -> Iterator[Server]:
    with running(partial(kind.start, app_port=link.port), kind.name) as server:
        yield server


@pytest.fixture
def world(kind: RealCache, mongo_url: str, prefix: str, app_port: int, cache: Server) -> dict[str, Any]:
    """What a site is made with."""
    return {
        "mongo_url": mongo_url, "database": prefix, "port": app_port, "delivery": kind.delivery(cache.url),
        "cache_url": cache.url, "deployment": prefix,
    }  # fmt: skip


async def started(
    site: CachedSite, names: list[str], link: Link | None
) -> tuple[asyncio.Future[list[int]], asyncio.Event]:
    """Fetches through the cache whose handlers have read 0.

    link: held from then on, so that the answers leave and do not arrive. None: the handlers wait for the event.
    """
    for name in names:
        await site.write(name, 0)
    read, go_on = asyncio.Event(), asyncio.Event()
    reads, left = 0, site.left

    async def hold() -> None:
        nonlocal reads
        reads += 1
        if reads == len(names):
            if link is not None:
                await asyncio.to_thread(link.stall)
                go_on.set()
            read.set()
        await go_on.wait()

    site.read = hold
    fetching = asyncio.gather(*map(site.get, names))
    await read.wait()
    site.read = nothing
    if link is not None:
        await eventually(lambda: site.left == left + len(names))
    return fetching, go_on


async def shown(site: CachedSite, names: list[str]) -> list[int]:
    """What the pages show through the cache."""
    return [await site.get(name) for name in names]


async def test_a_write_by_anybody_is_seen_through_the_cache(world: dict[str, Any], prefix: str) -> None:
    """Kept by the cache until then, and kept again after it; what the write does not change stays."""
    async with cached_site(**world, repurge_after_ms=100) as site:
        name, other = f"{prefix}-a", f"{prefix}-b"
        await site.write(name, 0)
        await site.write(other, 0)
        await eventually(lambda: site.kept(other))
        await eventually(site.settled)
        await eventually(lambda: site.kept(other))
        for n in range(1, 6):
            await eventually(lambda: site.kept(name))
            await site.write(name, n)

            async def seen(n: int = n) -> bool:
                return await site.get(name) == n

            await eventually(seen)
        assert await site.kept(other)


async def test_the_canary_goes(world: dict[str, Any], cache: Server) -> None:
    """So credentials, configuration, lifetimes and purges fit together."""
    async with cached_site(**world) as site:
        purge = site.quaestor.parts.effects.purging.of(site.delivery)
        found = await check(cache.url, canary_tag(site.quaestor.settings.scope), purge)
        assert found.level is Level.OK, found.sentence


@each_count
async def test_an_answer_that_was_invalidated_before_it_left_is_kept_by_nobody(
    world: dict[str, Any], prefix: str, batches: int
) -> None:
    """Its handler has read, the write comes, and its purge finds nothing: the answer goes out as not storable."""
    async with cached_site(**world) as site:
        for batch in range(batches):
            names = [f"{prefix}-{batch}-{number}" for number in range(TOGETHER)]
            fetching, go_on = await started(site, names, None)
            version = max([await site.write(name, 1) for name in names])
            await eventually(lambda version=version: site.quaestor.registry.watermark() >= version)  # type: ignore[misc]
            go_on.set()
            assert await fetching == [0] * TOGETHER
            assert await shown(site, names) == [1] * TOGETHER


async def test_without_the_middleware_the_cache_keeps_it(world: dict[str, Any], prefix: str) -> None:
    """An application that purges by itself, right after its write, as the manuals say."""
    async with cached_site(**world, protected=False) as site:
        fetching, go_on = await started(site, [prefix], None)
        await site.write(prefix, 1)
        await site.purge(prefix)
        go_on.set()
        assert await fetching == [0]
        assert await site.get(prefix) == 0


@each_count
async def test_an_answer_that_had_left_goes_with_the_second_purge(
    world: dict[str, Any], prefix: str, link: Link, batches: int
) -> None:
    """It arrives after the first purge, and within `repurge_after_ms`."""
    done = attempts = 0
    async with cached_site(**world, repurge_after_ms=2_000) as site:
        while done < batches:
            names = [f"{prefix}-{attempts}-{number}" for number in range(TOGETHER)]
            attempts += 1
            assert attempts < 3 * batches + 10
            fetching, _ = await started(site, names, link)
            for name in names:
                await site.write(name, 1)
            await eventually(lambda attempts=attempts: site.purged == TOGETHER * attempts)  # type: ignore[misc]
            await asyncio.to_thread(link.pass_)
            assert await fetching == [0] * TOGETHER
            in_time = await site.open_purges() >= TOGETHER  # else the machine stood still for longer than the setting
            await eventually(site.settled)
            if in_time:
                assert await shown(site, names) == [1] * TOGETHER
                done += 1


async def test_without_the_second_purge_the_cache_keeps_it(world: dict[str, Any], prefix: str, link: Link) -> None:
    async with cached_site(**world, repurge_after_ms=NEVER_MS) as site:
        fetching, _ = await started(site, [prefix], link)
        await site.write(prefix, 1)
        await eventually(lambda: site.purged == 1)
        await asyncio.to_thread(link.pass_)
        assert await fetching == [0]
        assert await site.get(prefix) == 0


@each_count
async def test_a_large_answer_that_had_left_is_purged_when_it_has_arrived(
    world: dict[str, Any], prefix: str, link: Link, batches: int
) -> None:
    """However long that takes: both purges were over before its first byte came."""
    async with cached_site(**world, repurge_after_ms=300) as site:
        site.padding = LARGE
        for batch in range(batches):
            names = [f"{prefix}-{batch}-{number}" for number in range(TOGETHER)]
            fetching, _ = await started(site, names, link)
            for name in names:
                await site.write(name, 1)
            before = TOGETHER * batch
            await eventually(lambda before=before: site.purged == before + TOGETHER)  # type: ignore[misc]
            await eventually(site.settled)
            assert site.count("sent_dead") == before
            await asyncio.to_thread(link.pass_)
            assert await fetching == [0] * TOGETHER
            await eventually(lambda before=before: site.count("sent_dead") == before + TOGETHER)  # type: ignore[misc]
            await eventually(site.settled)
            assert await shown(site, names) == [1] * TOGETHER
