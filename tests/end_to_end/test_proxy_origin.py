"""The proxy's side towards its origin: interim answers, early answers, limits, what a stalled party costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest

from quaestor.proxy import forwarder
from quaestor.proxy.options import ProxyOptions
from quaestor.testing.servers import HOST
from tests.end_to_end.scripted_origin import answer, listening, proxy, raw, scripted_origin, silent_origin
from tests.support import eventually

pytestmark = pytest.mark.anyio


async def test_interim_answers_are_passed_on_and_the_final_one_is_stored() -> None:
    script = (
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n"
        b"Connection: X-Hop\r\nX-Hop: 1\r\n\r\n" + answer("200 OK", "Cache-Control: max-age=60", body=b"then")
    )
    async with scripted_origin(lambda _: script) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        ask = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        got = await raw(url, ask)
        assert got.startswith(
            b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\nHTTP/1.1 200 "
        )
        assert got.endswith(b"then")
        again = await raw(url, ask)
        assert (again.startswith(b"HTTP/1.1 200 "), len(origin.asked)) == (True, 1)
        old = await raw(url, b"GET /old HTTP/1.0\r\nHost: a\r\n\r\n")
        assert old.startswith(b"HTTP/1.1 200 "), "HTTP/1.0 knows no interim answers"


async def test_an_answer_that_comes_before_the_end_of_the_request_is_passed_on() -> None:
    """413, and the origin has read nothing of it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Content Too Large", "Connection: close", body=b"enough"))
        await writer.drain()
        await reader.read()
        writer.close()

    async with listening(serve) as origin, proxy(ProxyOptions(origin=origin)) as url:
        reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
        writer.write(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\nConnection: close\r\n\r\n" + b"x" * 100_000
        )
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_a_large_upload_to_an_origin_that_reads_slowly_arrives_whole_and_is_not_collected() -> None:
    """The client is held up, as it would be without a proxy."""
    size = 64 * 1024 * 1024  # more than the sockets' buffers take in
    go_on = asyncio.Event()
    received = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await reader.readuntil(b"\r\n\r\n")
        await go_on.wait()
        while received < size:
            received += len(await reader.read(1 << 20))
        writer.write(answer("201 Created", "Connection: close"))
        writer.close()

    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(size // 65536):
            yield b"x" * 65536
            sent += 65536

    async with (
        listening(serve) as origin,
        proxy(ProxyOptions(origin=origin)) as url,
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        request = asyncio.create_task(client.post("/", content=pieces(), headers={"content-length": str(size)}))
        before = -1

        async def stalled() -> bool:
            nonlocal before
            same, before = sent == before and sent > 0, sent
            await asyncio.wait((request,), timeout=0.05)
            return same

        await eventually(stalled)
        assert sent < size
        go_on.set()
        assert (await request).status_code == 201
        assert received == size


async def test_when_all_connections_are_in_use_further_requests_are_refused() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await go_on.wait()
        writer.write(answer("200 OK", "Connection: close"))
        writer.close()

    async with (
        listening(serve) as origin,
        proxy(ProxyOptions(origin=origin, max_connections=1, pool_timeout_s=0.1)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        first = asyncio.create_task(client.get("/1"))
        await arrived.wait()
        assert (await client.get("/2")).status_code == 503
        go_on.set()
        assert (await first).status_code == 200

        async def given_back() -> bool:
            return (await client.get("/3")).status_code == 200

        await eventually(given_back)


async def test_a_client_that_is_silent_within_its_body_gets_408() -> None:
    async with (
        silent_origin() as (origin, left),
        proxy(ProxyOptions(origin=origin, body_ahead_bytes=1, body_patience_s=0.1)) as url,
    ):
        got = await raw(url, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        assert got.startswith(b"HTTP/1.1 408 ")
        await asyncio.wait_for(left.wait(), 20)


async def test_an_origin_that_hangs_within_its_answer_is_cut_off() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await reader.read()
        writer.close()

    async with listening(serve) as origin, proxy(ProxyOptions(origin=origin, read_timeout_s=0.2)) as url:
        got = await raw(url, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert not got.endswith(b"\r\n\r\nabcdefghij")


async def test_the_time_a_client_takes_to_send_is_not_the_origins() -> None:
    """read_timeout counts the origin's silence, and it has nothing to say before it has the request."""
    async with (
        scripted_origin(lambda request: answer(body=request.body)) as origin,
        proxy(ProxyOptions(origin=origin.url, read_timeout_s=3)) as url,
    ):
        reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\na")
        later_s = asyncio.get_running_loop().time() + 3.5
        await eventually(lambda: asyncio.get_running_loop().time() > later_s)
        writer.write(b"bc")
        async with asyncio.timeout(20):
            got = await reader.read()
        assert got.endswith(b"abc")
        writer.close()


async def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not read holds no connection to the origin for ever."""
    monkeypatch.setattr(forwarder, "UNREAD_S", 0.2)
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                await writer.drain()
        gone.set()

    async with listening(serve) as origin, proxy(ProxyOptions(origin=origin)) as url:
        _, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]), limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.wait_for(gone.wait(), 30)
        writer.close()
