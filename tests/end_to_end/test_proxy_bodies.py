"""Bodies and their framing, through the proxy to the origin and back, on real sockets."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import httpx
import pytest

from quaestor.proxy import forwarder
from quaestor.proxy.options import ProxyOptions
from quaestor.testing.servers import HOST
from tests.end_to_end.scripted_origin import Asked, answer, listening, proxy, raw, scripted_origin

pytestmark = pytest.mark.anyio


async def test_bodies_are_passed_on_as_the_bytes_they_are() -> None:
    packed = gzip.compress(b"hello")
    scripts = {
        b"/gzip": answer("200 OK", "Content-Encoding: gzip", body=packed),
        b"/chunks": answer("200 OK", "Transfer-Encoding: chunked", body=b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nX-T: 1\r\n\r\n"),
        b"/until-close": b"HTTP/1.1 200 OK\r\n\r\nall of it",
        b"/old": b"HTTP/1.0 200 OK\r\nX-A: 1\r\n\r\nold",
        b"/redirect": answer("302 Found", "Location: /gzip", body=b"go"),
        b"/early": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + answer(body=b"then"),
    }  # fmt: skip
    async with (
        scripted_origin(lambda request: scripts[request.line.split(b" ")[1]]) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        async with client.stream("GET", "/gzip") as got:
            assert b"".join([chunk async for chunk in got.aiter_raw()]) == packed
        assert (await client.get("/chunks")).content == b"abc"
        assert (await client.get("/until-close")).content == b"all of it"
        old = await client.get("/old")
        assert (old.content, old.headers["via"]) == (b"old", "1.0 quaestor")
        redirect = await client.get("/redirect")
        assert (redirect.status_code, redirect.headers["location"]) == (302, "/gzip")
        assert (await client.get("/early")).content == b"then"


async def test_head_204_and_304_have_no_body_and_the_connection_stays_in_step() -> None:
    def script(request: Asked) -> bytes:
        method, target, _ = request.line.split(b" ")
        if method == b"HEAD":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"
        return {
            b"/204": b"HTTP/1.1 204 No Content\r\nETag: \"a\"\r\n\r\n",
            b"/304": b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 77\r\n\r\n",
        }.get(target, answer(body=b"next"))  # fmt: skip

    async with scripted_origin(script) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        got = await raw(
            url,
            b"HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /204 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /304 HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"a\"\r\n\r\n",
            b"GET /n HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )  # fmt: skip
        heads = [head.lower() for head in got.split(b"HTTP/1.1 ")[1:]]
        assert [head[:3] for head in heads] == [b"200", b"204", b"304", b"200"]
        assert b"content-length: 77" in heads[0]
        assert all(head.endswith(b"\r\n\r\n") for head in heads[:3])
        assert heads[3].endswith(b"next")


async def test_request_bodies_are_passed_on_in_the_framing_they_came_in() -> None:
    async with (
        scripted_origin(lambda _: answer("201 Created")) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):

        async def pieces() -> AsyncIterator[bytes]:
            for number in range(50):
                yield b"%d" % number * 3000

        whole = b"".join([piece async for piece in pieces()])
        await client.post("/length", content=whole)
        await client.put("/chunks", content=pieces())
        await client.request("DELETE", "/none")
        await client.post("/empty", content=b"")
        length, chunks, none, empty = origin.asked
        assert (length.body, length.of(b"content-length"), length.of(b"transfer-encoding")) == (
            whole, [b"%d" % len(whole)], [],
        )  # fmt: skip
        assert (chunks.body, chunks.of(b"content-length"), chunks.of(b"transfer-encoding")) == (whole, [], [b"chunked"])
        assert none.of(b"content-length") + none.of(b"transfer-encoding") == []
        assert empty.of(b"content-length") == [b"0"]


async def test_an_answer_is_passed_on_while_it_is_made_and_a_client_that_leaves_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first piece arrives although the origin never ends, so nothing is collected; the origin gets a moment after
    its client left.
    """
    monkeypatch.setattr(forwarder, "FINISH_S", 0.1)
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"5\r\nfirst\r\n6\r\nsecond\r\n")
        await reader.read()
        left.set()
        writer.close()

    async with (
        listening(serve) as origin,
        proxy(ProxyOptions(origin=origin)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        async with client.stream("GET", "/") as got:
            assert await anext(aiter(got.aiter_raw())) == b"first"
        await asyncio.wait_for(left.wait(), 30)


async def test_a_client_that_expects_100_continue_receives_it() -> None:
    async with (
        scripted_origin(lambda _: answer("201 Created")) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
    ):
        reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
        writer.write(
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        assert (await reader.read()).startswith(b"HTTP/1.1 201 ")
        writer.close()
        assert (origin.asked[0].body, origin.asked[0].of(b"expect")) == (b"abc", [])


async def test_http_1_0_clients_get_an_answer_they_can_read() -> None:
    script = answer("200 OK", "Transfer-Encoding: chunked", body=b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
    async with scripted_origin(lambda _: script) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        got = (await raw(url, b"GET / HTTP/1.0\r\n\r\n")).lower()
        assert b"transfer-encoding" not in got
        assert b"content-length: 3\r\n" in got
        assert got.endswith(b"\r\n\r\nabc")
