"""Purges of a cache of one's own over HTTP, side by side, with a local server in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from quaestor.cdn_adapters import BatchLimits, Delivery, Nginx
from quaestor.cdn_adapters.capabilities import URL
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.requests import SIDE_BY_SIDE, sending
from quaestor.cdn_adapters.sender import Sender
from quaestor.cdn_adapters.sender_options import SenderOptions
from quaestor.clock import system_clock
from quaestor.store.outbox_memory import MemoryOutbox
from tests.support import eventually

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def http_cache(answers: Callable[[str], Awaitable[int]]) -> AsyncIterator[str]:
    """Purge server that answers each URL's path with its configured status."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                status = await answers(head.split(b" ", 2)[1].decode())
                writer.write(b"HTTP/1.1 %d x\r\nquaestor-purged: 1\r\ncontent-length: 0\r\n\r\n" % status)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def purging(url: str, outbox: MemoryOutbox) -> AsyncIterator[Sender]:
    """A sender of purges to what listens there."""
    sender = Sender(
        Nginx(url, token="secret"),
        outbox,
        options=SenderOptions(repurge_after_ms=3_600_000, limits=BatchLimits(first_retry_ms=1, last_retry_ms=5)),
    )
    sender.start()
    try:
        yield sender
    finally:
        await sender.aclose()


async def purged(sender: Sender, *paths: str) -> None:
    targets = [Target(URL, f"http://shop.example{path}") for path in paths]
    await (await sender.put(targets, until_ms=system_clock() + 60_000))()


async def test_a_cache_is_asked_by_several_requests_at_once() -> None:
    """The cache answers only when all allowed requests have arrived: one after the other they would wait for ever."""
    paths = [f"/{n}" for n in range(SIDE_BY_SIDE)]
    arrived: set[str] = set()
    everybody = asyncio.Event()

    async def answers(path: str) -> int:
        arrived.add(path)
        if len(arrived) == len(paths):
            everybody.set()
        await everybody.wait()
        return 200

    async with http_cache(answers) as url, purging(url, MemoryOutbox()) as sender:
        async with asyncio.timeout(20):
            await asyncio.gather(*(purged(sender, path) for path in paths))
    async with http_cache(answers) as url, sending(Nginx(url, token="secret")) as send:
        arrived.clear()
        everybody.clear()
        async with asyncio.timeout(20):
            await send([Target(URL, f"http://shop.example{path}") for path in paths])


async def test_failed_targets_alone_are_put_back_and_sent_again() -> None:
    """The others were under way beside it."""
    paths = [f"/{n}" for n in range(5)]
    requests: list[str] = []
    failed = asyncio.Event()

    async def answers(path: str) -> int:
        requests.append(path)
        if path == "/3" and not failed.is_set():
            failed.set()
            return 503
        await failed.wait()
        return 200

    async with http_cache(answers) as url, purging(url, MemoryOutbox()) as sender:
        async with asyncio.timeout(20):
            await asyncio.gather(*(purged(sender, path) for path in paths))
    assert sorted(requests) == sorted([*paths, "/3"])


async def test_closing_while_several_are_under_way_loses_none() -> None:
    """The purges are in the outbox, to be taken at once, and the next sender sends them."""
    paths = {f"/{n}" for n in range(20)}
    requests: list[str] = []
    mute = asyncio.Event()

    async def answers(path: str) -> int:
        requests.append(path)
        await mute.wait()
        return 200

    outbox = MemoryOutbox()
    async with http_cache(answers) as url:
        async with purging(url, outbox) as sender:
            puts = [asyncio.ensure_future(purged(sender, path)) for path in paths]
            await eventually(lambda: len(requests) == SIDE_BY_SIDE)
        size = await outbox.size(sender.queue)
        assert (size.waiting, size.taken) == (20, 0)
        await asyncio.gather(*puts)
        requests.clear()
        mute.set()
        async with purging(url, outbox):
            await eventually(lambda: set(requests) == paths)
        assert len(requests) == 20


async def test_purges_without_an_outbox_follow_each_other_where_a_pause_is_wanted() -> None:
    """Each is asked when the one before it was answered."""
    under_way = 0
    most = 0

    async def answers(path: str) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(20):
            await asyncio.sleep(0)
        under_way -= 1
        return 200

    urls = [f"http://shop.example/{n}" for n in range(5)]
    async with http_cache(answers) as url:
        delivery = Delivery(Nginx(url, token="secret"), limits=BatchLimits(pause_ms=1))
        await delivery.purge(tags=[], urls=urls)
        await delivery.aclose()
        assert most == 1
        delivery = Delivery(Nginx(url, token="secret"), limits=BatchLimits())
        await delivery.purge(tags=[], urls=urls)
        await delivery.aclose()
        assert most > 1
