"""The whole way on every real cache: a write by any client purges the changed answers, also ones that are being sent.

The races of small answers are run without the protection too: then an old answer stays in the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from benchmarks.setups.faults.proxy import Link, Links
from benchmarks.setups.real_caches import RealCache, each_cache
from quaestor.invalidation.effects.purge_probe import Level, check, probe_tag
from quaestor.model import Version
from quaestor.testing.servers import Server, free_port, running
from tests.end_to_end.cached_site import NEVER_MS, CachedSite, cached_site, nothing
from tests.support import PATIENCE_S, eventually

pytestmark = [pytest.mark.anyio, each_cache]
TOGETHER = 5
"""Answers that race at the same time."""
each_count = pytest.mark.parametrize("batches", [1, pytest.param(20, marks=pytest.mark.slow)])
"""A hundred answers when it counts."""
ATTEMPTS = 20
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
    """The arguments of a site."""
    return {
        "mongo_url": mongo_url, "database": prefix, "port": app_port, "place": kind.place(cache.url),
        "cache_url": cache.url, "deployment": prefix,
    }  # fmt: skip


@dataclass
class Race:
    """Fetches of some pages through the cache, whose handlers have read 0 and whose answers have not arrived."""

    site: CachedSite
    names: list[str]
    fetching: asyncio.Future[list[int]]
    go_on: asyncio.Event
    link: Link | None

    async def write(self) -> Version:
        """Write 1 to all of them; the last write's version."""
        return max([await self.site.write(name, 1) for name in self.names])

    async def arrive(self) -> list[int]:
        """Let them arrive; what they show."""
        self.go_on.set()
        if self.link is not None:
            await asyncio.to_thread(self.link.pass_)
        return await asyncio.wait_for(asyncio.shield(self.fetching), 2 * PATIENCE_S)

    async def shown(self) -> list[int]:
        """Return the numbers that the pages show through the cache now."""
        return [await self.site.get(name) for name in self.names]

    async def purged(self, times: int) -> None:
        """Return when the cache has acknowledged so many purges of each page."""
        await eventually(lambda: all(self.site.purges(name) >= times for name in self.names))


@asynccontextmanager
async def racing(site: CachedSite, name: str, link: Link | None = None) -> AsyncIterator[Race]:
    """A race of pages with this name. At the end of the block everything goes on, also after a failure.

    link: held, so that the answers leave the application and do not arrive. None: the handlers wait when they have
    read.
    """
    for attempt in range(ATTEMPTS):
        async with begun(site, f"{name}-{attempt}", link) as race:
            # The app forbids storage of an answer that it is not sure of, if the machine stands still just then.
            if link is None or all(map(site.let, race.names)):
                yield race
                return
    pytest.fail(f"in {ATTEMPTS} attempts the cache was never allowed to keep all answers")


@asynccontextmanager
async def begun(site: CachedSite, name: str, link: Link | None) -> AsyncIterator[Race]:
    """One attempt."""
    names = [f"{name}-{number}" for number in range(TOGETHER)]
    for site_name in names:
        await site.write(site_name, 0)
    read, go_on = asyncio.Event(), asyncio.Event()
    reads = 0

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
    race = Race(site, names, asyncio.gather(*map(site.get, names)), go_on, link)
    try:
        await asyncio.wait_for(read.wait(), 2 * PATIENCE_S)
        site.read = nothing
        if link is not None:
            await eventually(lambda: all(site.let(name) is not None for name in names))
        yield race
    finally:
        site.read = nothing
        go_on.set()
        if link is not None:
            await asyncio.to_thread(link.pass_)
        race.fetching.cancel()
        await asyncio.gather(race.fetching, return_exceptions=True)


async def until_in_time(
    site: CachedSite, name: str, link: Link, raced: Callable[[Race], Awaitable[bool]], *, batches: int
) -> None:
    """Race until so many batches have arrived in time: between the purges that they were to arrive between.

    raced: runs one, and says whether it was in time; if not, the machine stood still for longer than the purges were apart.
    """
    done = 0
    for attempt in range(3 * batches + 10):
        async with racing(site, f"{name}-{attempt}", link) as race:
            done += await raced(race)
        if done == batches:
            return
    pytest.fail(f"{done} of {batches} batches arrived in time")


@pytest.fixture
def purged_at_once(kind: RealCache) -> None:
    """A cache that does not wait: what is raced against is then over before the answer comes."""
    if kind.purge_waits:
        pytest.skip("a purge of what it is fetching is answered when that has come")


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


async def test_the_canary_finds_the_whole_setup_in_order(world: dict[str, Any], cache: Server) -> None:
    """Credentials, configuration, lifetimes and purges fit together."""
    async with cached_site(**world) as site:
        purge = site.quaestor.parts.effects.purging.of(site.delivery)
        finding = await check(cache.url, probe_tag(site.quaestor.settings.scope), purge)
        assert finding.level is Level.OK, finding.sentence


@each_count
async def test_an_answer_that_was_invalidated_before_it_left_is_kept_by_nobody(
    world: dict[str, Any], prefix: str, batches: int
) -> None:
    """Its handler has read, the write comes, and its purge finds nothing: the answer goes out as not storable."""
    async with cached_site(**world) as site:
        for batch in range(batches):
            async with racing(site, f"{prefix}-{batch}") as race:
                version = await race.write()
                await eventually(lambda version=version: site.quaestor.registry.watermark() >= version)  # type: ignore[misc]
                assert await race.arrive() == [0] * TOGETHER
                assert await race.shown() == [1] * TOGETHER


@pytest.mark.usefixtures("purged_at_once")
async def test_without_the_middleware_the_cache_keeps_it(world: dict[str, Any], prefix: str) -> None:
    """An application that purges by itself, right after its write, as the manuals say."""
    async with cached_site(**world, protected=False) as site, racing(site, prefix) as race:
        await race.write()
        for name in race.names:
            await site.purge(name)
        assert await race.arrive() == [0] * TOGETHER
        assert await race.shown() == [0] * TOGETHER


@pytest.mark.usefixtures("purged_at_once")
@each_count
async def test_an_answer_that_had_left_goes_with_the_second_purge(
    world: dict[str, Any], prefix: str, link: Link, batches: int
) -> None:
    """The answer arrives after the first purge, within `repurge_after_ms`, and the cache keeps it until the second one."""

    async def raced(race: Race) -> bool:
        await race.write()
        await race.purged(1)
        assert await race.arrive() == [0] * TOGETHER
        shown = await race.shown()
        in_time = all(race.site.purges(name) == 1 for name in race.names)
        await race.purged(2)
        await eventually(race.site.settled)
        if in_time:
            assert shown == [0] * TOGETHER
            assert await race.shown() == [1] * TOGETHER
        return in_time

    async with cached_site(**world, repurge_after_ms=2_000) as site:
        await until_in_time(site, prefix, link, raced, batches=batches)


@pytest.mark.usefixtures("purged_at_once")
async def test_without_the_second_purge_the_cache_keeps_it(world: dict[str, Any], prefix: str, link: Link) -> None:
    async with cached_site(**world, repurge_after_ms=NEVER_MS) as site, racing(site, prefix, link) as race:
        await race.write()
        await race.purged(1)
        assert await race.arrive() == [0] * TOGETHER
        assert await race.shown() == [0] * TOGETHER


@pytest.mark.usefixtures("purged_at_once")
@each_count
async def test_a_large_answer_that_had_left_is_purged_when_it_has_arrived(
    world: dict[str, Any], prefix: str, link: Link, batches: int
) -> None:
    """An answer whose first byte came after both purges is purged at the end of its transfer, however late, and once
    more.
    """

    async def raced(race: Race) -> bool:
        await race.write()
        await race.purged(2)
        await eventually(race.site.settled)
        assert await race.arrive() == [0] * TOGETHER
        in_time = all(race.site.purges(name) <= 3 for name in race.names)
        await race.purged(4)
        await eventually(race.site.settled)
        if in_time:
            assert await race.shown() == [1] * TOGETHER
        return in_time

    async with cached_site(**world, repurge_after_ms=1_000) as site:
        site.padding = LARGE
        await until_in_time(site, prefix, link, raced, batches=batches)
