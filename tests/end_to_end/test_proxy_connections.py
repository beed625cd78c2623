"""The proxy's connections to the origin: used again, broken off, poisoned, refused."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from quaestor.proxy.options import ProxyOptions
from quaestor.testing.servers import HOST, free_port
from tests.end_to_end.scripted_origin import answer, listening, proxy, read_request
from tests.support import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_an_origin_that_is_away_slow_or_mad_is_a_502_or_504_that_says_so() -> None:
    hang = asyncio.Event()

    async def mad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        if target == b"/hang":
            await hang.wait()
        writer.write({b"/noise": b"\x00\x01nonsense\r\n\r\n", b"/999": b"HTTP/1.1 999 X\r\n\r\n"}.get(target, b""))
        writer.close()

    async with (
        listening(mad) as origin,
        proxy(ProxyOptions(origin=origin)) as url,
        proxy(ProxyOptions(origin=origin, read_timeout_s=0.2)) as impatient,
        proxy(ProxyOptions(origin=f"http://{HOST}:{free_port()}")) as nowhere,
        httpx.AsyncClient() as client,
    ):
        for base, path, status, error in (
            (nowhere, "/", 502, "connection_refused"),
            (url, "/close", 502, "connection_terminated"),
            (url, "/noise", 502, "http_protocol_error"),
            (url, "/999", 502, "http_protocol_error"),
            (impatient, "/hang", 504, "http_response_timeout"),
        ):
            got = await client.get(base + path)
            assert got.status_code == status, path
            assert got.headers["proxy-status"] == f"quaestor; error={error}"
            assert got.headers["content-type"] == "application/problem+json"
            assert "no-store" in got.headers["cache-control"]
            assert (got.json()["status"], HOST in got.text) == (status, False)
            assert (await client.head(base + path)).status_code == status
    hang.set()


async def test_an_answer_that_breaks_off_is_not_made_to_look_whole() -> None:
    scripts = {
        b"/length": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nCache-Control: max-age=60\r\n\r\nabc",
        b"/chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\r\n3\r\nabc\r\n",
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(scripts[(await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]])
        writer.close()

    async with (
        listening(serve) as origin,
        proxy(ProxyOptions(origin=origin)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for path in ("/length", "/chunks"):
            for _ in range(2):
                try:
                    whole = (await client.get(path)).status_code == 200
                except httpx.RemoteProtocolError:
                    whole = False
                assert not whole


async def test_idle_connections_to_the_origin_are_used_again() -> None:
    async with (
        numbered_origin(lambda _: answer(body=b"x")) as (origin, connections),
        proxy(ProxyOptions(origin=origin, keepalive_s=PATIENCE_S)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for number in range(5):
            assert (await client.get(f"/{number}")).text == "x"
        assert len(connections) == 1


async def test_bytes_behind_an_answer_are_not_taken_for_the_next_one() -> None:
    """Response splitting by a faulty origin: the connection is given up."""
    poison = answer("200 OK", "Cache-Control: max-age=60", body=b"poison")
    async with (
        numbered_origin(lambda n: answer(body=b"x") + (poison if n == 0 else b"")) as (origin, connections),
        proxy(ProxyOptions(origin=origin)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        for number in range(3):
            assert (await client.get(f"/{number}")).text == "x"
        assert len(connections) == 2


async def test_a_connection_that_the_origin_just_closed_costs_a_safe_request_nothing() -> None:
    """The second request on the first connection is not answered: a GET is sent again, a POST is not."""

    def script(count: int) -> bytes | None:
        return answer(body=b"x") if count != 1 else None

    async with (
        numbered_origin(script) as (origin, connections),
        proxy(ProxyOptions(origin=origin)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/1")).text == "x"
        assert (await client.get("/2")).text == "x"
        assert len(connections) == 2
    async with (
        numbered_origin(script) as (origin, connections),
        proxy(ProxyOptions(origin=origin)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/1")).text == "x"
        assert (await client.post("/2", content=b"y")).status_code == 502
        assert len(connections) == 1


@asynccontextmanager
async def numbered_origin(script: Callable[[int], bytes | None]) -> AsyncIterator[tuple[str, list[int]]]:
    """An origin that answers its n-th request with script(n), or by closing the connection; and a list of its connections."""
    connections: list[int] = []
    requests = itertools.count()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while await read_request(reader) is not None:
            given = script(next(requests))
            if given is None:
                break
            writer.write(given)
        writer.close()

    async with listening(serve) as origin:
        yield origin, connections
