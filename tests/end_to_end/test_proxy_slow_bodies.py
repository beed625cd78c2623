"""Clients that send their bodies slowly, over real sockets, before a real origin: they hold nothing that others need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from quaestor.errors import ConfigurationError
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.server import application, configuration
from quaestor.testing.servers import HOST
from tests.end_to_end.scripted_origin import PLAIN, answer, listening, proxy, raw, scripted_origin, serving
from tests.support import eventually

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def sender(url: str, size: int, sent: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that announces a body of so many bytes and has sent these."""
    reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
    try:
        writer.write(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + sent)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(20):
        return int((await reader.readline()).split()[1])


async def test_however_many_send_slowly_the_others_are_served() -> None:
    """Ten bodies of which a byte has come, before an origin with two connections: it has not even heard of them."""
    async with (
        scripted_origin(lambda request: answer(body=request.line)) as origin,
        proxy(ProxyOptions(origin=origin.url, max_connections=2, pool_timeout_s=0.5)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        slow = [await asyncio.create_task(aenter(sender(url, 100, b"x"))) for _ in range(10)]
        for number in range(3):
            assert (await client.get(f"/{number}")).status_code == 200
            assert (await client.post(f"/{number}", content=b"whole")).status_code == 200
        assert not any(request.line.startswith(b"POST /slow") for request in origin.asked)
        reader, writer = slow[0][1]
        writer.write(b"x" * 99)
        assert await status(reader) == 200
        assert origin.asked[-1].body == b"x" * 100
        for entered, _ in slow:
            await entered.__aexit__(None, None, None)


async def aenter(made: Any) -> tuple[Any, Any]:
    return made, await made.__aenter__()


async def test_those_who_sent_enough_to_be_let_through_take_half_of_the_connections_at_most() -> None:
    """As slowly as the pace allows, and still nobody else has to wait for them."""
    connected: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                connected.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
                if connected[-1].startswith(b"POST"):
                    await reader.read()
                writer.write(answer(body=b"here"))
        writer.close()

    options: dict[str, Any] = {"max_connections": 4, "pool_timeout_s": 0.3, "body_ahead_bytes": 1000}
    async with (
        listening(serve) as origin,
        proxy(ProxyOptions(origin=origin, **options)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        slow = [await aenter(sender(url, 100_000, b"x" * 2000)) for _ in range(6)]
        refused = [asyncio.create_task(status(reader)) for _, (reader, _) in slow]
        await eventually(lambda: sum(task.done() for task in refused) == 4)
        assert {task.result() for task in refused if task.done()} == {503}
        assert connected == [b"POST /slow HTTP/1.1"] * 2
        for _ in range(3):
            assert (await client.get("/others")).text == "here"
        assert sum(task.done() for task in refused) == 4
        for task in refused:
            task.cancel()
        await asyncio.gather(*refused, return_exceptions=True)
        for entered, _ in slow:
            await entered.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("why", "bounds"),
    [
        ("rate", {"body_patience_s": 0.2, "body_min_bytes_per_s": 1000.0}),
        ("time", {"body_patience_s": 60.0, "body_timeout_s": 0.2}),
    ],
)
@pytest.mark.parametrize("ahead", [0, 1000])
@pytest.mark.parametrize("silent", [True, False])
async def test_a_body_that_comes_too_slowly_is_answered_with_408_and_counted(
    why: str, bounds: dict[str, float], ahead: int, silent: bool
) -> None:
    """A slow body gets 408 before or after the origin was asked.

    In the second case the connection to the origin is given up. A client that goes on sending receives the 408 too.
    The connection is closed for writing first, and further bytes are dropped for a moment (RFC 9112, section 9.6).
    """
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()
        writer.close()

    async with listening(serve) as origin:
        options = ProxyOptions(origin=origin, body_ahead_bytes=ahead, **bounds)  # type: ignore[arg-type]
        async with (
            serving(configuration(application(options, PLAIN, metrics=True))) as url,
            sender(url, 100_000, b"x") as (reader, writer),
        ):
            answered = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
            while not (await asyncio.wait((answered,), timeout=0.02))[0]:
                if not silent:
                    writer.write(b"x")
            got = await answered
            assert got.startswith(b"HTTP/1.1 408 ")
            assert b"connection: close" in got.lower()
            if not silent:
                writer.write(b"x" * 10_000)
            await reader.read()
            if ahead == 0:
                await asyncio.wait_for(left.wait(), 20)
            metrics = await raw(url, b"GET /quaestor/metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert b'quaestor_proxy_slow_bodies_total{why="%s"} 1.0' % why.encode() in metrics
            assert b'quaestor_failures_total{part="client"} 1.0' in metrics


async def send_on(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()
        await asyncio.sleep(0)


@pytest.mark.parametrize("ahead", [0, 1000])
async def test_the_408_arrives_whole_at_who_never_stops_sending_and_the_connection_ends(ahead: int) -> None:
    """Everything that the client sends before it reads is met by no reset; a second later the connection is gone for good."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    bounds: dict[str, Any] = {"body_patience_s": 60.0, "body_timeout_s": 0.2, "body_ahead_bytes": ahead}
    async with (
        listening(serve) as origin,
        proxy(ProxyOptions(origin=origin, **bounds)) as url,
        sender(url, 100_000_000, b"x") as (reader, writer),
    ):
        got = bytearray()

        async def read() -> None:
            while piece := await reader.read(65_536):
                got.extend(piece)

        reading = asyncio.create_task(read())
        while not reading.done():  # until the answer's end: writing is never refused before
            writer.write(b"x" * 100)
            await asyncio.sleep(0)
        await reading
        head, _, body = bytes(got).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert b"content-length: %d" % len(body) in head.lower()
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionError):
                await send_on(writer)


async def test_an_origin_that_reads_slowly_is_not_the_clients_fault() -> None:
    """An origin may pause for longer than a client may; bytes sent meanwhile count as sent."""
    size = 32 * 1024 * 1024
    loop = asyncio.get_running_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        later_s = loop.time() + 1.5
        await eventually(lambda: loop.time() > later_s)
        left = size
        while left:
            left -= len(await reader.read(1 << 20))
        writer.write(answer("201 Created", "Connection: close"))
        writer.close()

    bounds = {"body_patience_s": 0.7, "body_timeout_s": 30.0}
    async with (
        listening(serve) as origin,
        proxy(ProxyOptions(origin=origin, **bounds)) as url,  # type: ignore[arg-type]
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        assert (await client.post("/", content=b"x" * size)).status_code == 201


@pytest.mark.parametrize(
    "wrong",
    [
        {"body_min_bytes_per_s": 0},
        {"body_min_bytes_per_s": float("nan")},
        {"body_patience_s": -1},
        {"body_timeout_s": float("inf")},
        {"body_ahead_bytes": -1},
        {"body_ahead_bytes": 1 << 30},
    ],
)
def test_bounds_that_are_none_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        ProxyOptions(origin="http://a", **wrong)
