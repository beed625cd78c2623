"""Ambiguous or oversized requests never reach the origin."""

from __future__ import annotations

import asyncio
import socket

import pytest

from quaestor.errors import ConfigurationError
from quaestor.proxy import protocol
from quaestor.proxy.options import ProxyOptions, parse_listen
from quaestor.testing.servers import HOST
from tests.end_to_end.scripted_origin import Asked, answer, proxy, raw, scripted_origin, silent_origin

pytestmark = pytest.mark.anyio

HOST_A = b"Host: a\r\nConnection: close\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nX: y\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a/../b\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: u@a\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost:\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Content-Length: 5\r\nContent-Length: 6\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Content-Length: 5, 5\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Content-Length: +5\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Content-Length: -5\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Content-Length: 0x5\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Content-Length : 5\r\n", (400,)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Transfer-Encoding: xchunked\r\n", (400, 501)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Transfer-Encoding: chunked, identity\r\n", (400, 501)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Transfer-Encoding: gzip, chunked\r\n", (400, 501)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", (400, 501)),
        (b"POST / HTTP/1.1\r\n" + HOST_A + b"Transfer-Encoding\x0b: chunked\r\n", (400,)),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", (400,)),
        (b"GET / HTTP/1.1\r\n" + HOST_A + b"X: a\x01b\r\n", (400,)),
        (b"GET / HTTP/1.1\r\n" + HOST_A + b"X: a\x00b\r\n", (400,)),
        (b"GET / HTTP/1.1\r\n" + HOST_A + b"X: a\r\n folded\r\n", (400,)),
        (b"GET / HTTP/1.1\r\n" + HOST_A + b"Expect: miracles\r\n", (417,)),
        (b"GET / HTTP/1.1\r\n" + HOST_A + b"Via: " + b"1.1 quaestor, " * 8 + b"1.1 x\r\n", (508,)),
        (b"GET / HTTP/1.1\r\n" + HOST_A + b"A: b\r\n" * 250, (431,)),
        (b"GET / HTTP/1.1\r\n" + HOST_A + b"A: " + b"b" * 200_000 + b"\r\n", (431,)),
        (b"GET / HTTP/1.1\r\n" + HOST_A + b"A: " + b"b" * 98_400 + b"\r\n", (431,)),
        (b"GET /" + b"b" * 200_000 + b" HTTP/1.1\r\n" + HOST_A, (431,)),
        (b"TRACE / HTTP/1.1\r\n" + HOST_A, (405,)),
        (b"CONNECT a:443 HTTP/1.1\r\n" + HOST_A, (400, 501)),
        (b"GET a HTTP/1.1\r\n" + HOST_A, (400,)),
        (b"GET ftp://a/ HTTP/1.1\r\n" + HOST_A, (400,)),
        (b"GET http://u:p@a/ HTTP/1.1\r\n" + HOST_A, (400,)),
        (b"GET * HTTP/1.1\r\n" + HOST_A, (400,)),
        (b"GET / HTTP/3.7\r\n" + HOST_A, (400,)),
    ],
)  # fmt: skip
async def test_an_ambiguous_request_is_refused_and_nothing_behind_it_is_answered(
    head: bytes, statuses: tuple[int, ...]
) -> None:
    """RFC 9112, section 11.2. The connection is closed, so what follows cannot be taken for a request."""
    async with scripted_origin(lambda _: answer(body=b"x")) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        got = await raw(url, head + b"\r\n" + b"0\r\n\r\n" + SMUGGLED)
        assert got.startswith(b"HTTP/1.1 "), got
        assert int(got[9:12]) in statuses
        assert got.count(b"HTTP/1.1 ") == 1
        assert origin.asked == []


async def test_a_head_that_never_ends_is_cut_off_by_size() -> None:
    async with scripted_origin(lambda _: answer()) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        got = await raw(url, b"GET / HTTP/1.1\r\nX: ", *[b"y" * 10_000] * 11)
        assert got.startswith(b"HTTP/1.1 431 ")


async def test_a_head_that_never_ends_is_cut_off_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)
    async with scripted_origin(lambda _: answer()) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        # The bytes are there before the proxy accepts the connection, so the connection counts as used after any delay.
        began = socket.create_connection((HOST, int(url.rpartition(":")[2])))
        began.sendall(b"GET / HTTP/1.1\r\nX: ")
        reader, writer = await asyncio.open_connection(sock=began)
        async with asyncio.timeout(20):
            assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        assert await raw(url, b"") == b"", "opened in advance, and never used"


async def test_a_large_head_within_the_bound_passes() -> None:
    async with scripted_origin(lambda _: answer(body=b"x")) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        got = await raw(
            url,
            b"GET / HTTP/1.1\r\n" + HOST_A + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 600) for n in range(120)) + b"\r\n",
        )
        assert got.startswith(b"HTTP/1.1 200 ")
        assert len(origin.asked[0].headers) > 120


async def test_only_the_hosts_that_are_served_get_an_answer() -> None:
    async with (
        scripted_origin(lambda _: answer(body=b"x")) as origin,
        proxy(ProxyOptions(origin=origin.url, hosts=frozenset({"shop.example"}))) as url,
    ):
        for host, status in ((b"shop.example", b"200"), (b"SHOP.example:8080", b"200"), (b"evil.example", b"421")):
            got = await raw(url, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
            assert got[9:12] == status
        assert len(origin.asked) == 2


async def test_options_goes_no_further_than_it_may() -> None:
    async with (
        scripted_origin(lambda _: answer("200 OK", "Allow: GET")) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
    ):
        got = await raw(url, b"OPTIONS / HTTP/1.1\r\nMax-Forwards: 0\r\n" + HOST_A + b"\r\n")
        assert b"allow: GET, HEAD" in got
        assert origin.asked == []
        await raw(url, b"OPTIONS / HTTP/1.1\r\nMax-Forwards: 3\r\n" + HOST_A + b"\r\n")
        assert origin.asked[0].of(b"max-forwards") == [b"2"]


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async with (
        scripted_origin(lambda request: answer(body=request.line.split(b" ")[1])) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
    ):
        got = await raw(
            url,
            b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(5))
            + b"GET /end HTTP/1.1\r\n"
            + HOST_A
            + b"\r\n",
        )
        assert [part.rpartition(b"\r\n\r\n")[2] for part in got.split(b"HTTP/1.1 ")[1:]] == [
            b"/0", b"/1", b"/2", b"/3", b"/4", b"/end",
        ]  # fmt: skip


async def test_websockets_are_not_tunnelled() -> None:
    """The origin is asked for a plain GET; the client learns that nothing was upgraded."""
    async with (
        scripted_origin(lambda _: answer("426 Upgrade Required")) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
    ):
        got = await raw(
            url,
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
        )
        assert got.startswith(b"HTTP/1.1 426 ")
        assert origin.asked[0].of(b"upgrade") == []


async def test_a_client_that_is_silent_in_its_body_does_not_hold_the_origin_for_ever() -> None:
    """It leaves; the request to the origin is given up."""
    async with silent_origin() as (origin, left), proxy(ProxyOptions(origin=origin, body_ahead_bytes=1)) as url:
        _, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        await writer.drain()
        writer.close()
        await asyncio.wait_for(left.wait(), 20)


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "127.0.0.1:80",
        "ftp://a",
        "http://",
        "http://a/path",
        "http://a?b",
        "http://u:p@a",
        "http://a:0",
        "http://a:99999",
        "http://a b",
    ],
)
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    with pytest.raises(ConfigurationError, match="--origin"):
        ProxyOptions(origin=origin)


@pytest.mark.parametrize("text", ["", "127.0.0.1", "a:b", "a:99999", "a:-1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--listen"):
        parse_listen(text)


def test_addresses_to_listen_on() -> None:
    assert parse_listen("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_listen(":80") == ("0.0.0.0", 80)
    assert parse_listen("[::1]:80") == ("::1", 80)


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_the_answer_to_an_empty_query_is_not_the_page(method: bytes) -> None:
    """`/a?` goes on as it is, so an origin may answer it differently; the cache must not take its answer for that of `/a`."""

    def reflecting(request: Asked) -> bytes:
        return answer("200 OK", "Cache-Control: max-age=60", f"X-Asked: {request.line.decode()}", body=b"x")

    async with scripted_origin(reflecting) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        for _ in range(2):
            for target in (b"/a?", b"/a"):
                got = await raw(url, method + b" " + target + b" HTTP/1.1\r\n" + HOST_A + b"\r\n")
                assert b" " + target + b" HTTP/1.1\r\n" in got
