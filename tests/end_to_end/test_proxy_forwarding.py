"""Targets and fields that pass through the proxy to the origin and back, byte by byte, on real sockets."""

from __future__ import annotations

import httpx
import pytest

from quaestor.proxy.options import ProxyOptions
from tests.end_to_end.scripted_origin import answer, proxy, raw, scripted_origin

pytestmark = pytest.mark.anyio


async def test_a_target_reaches_the_origin_exactly_as_it_was_received() -> None:
    targets = [
        b"/a%2Fb//c/../d;e=1?x=%20&x=+&&y", b"/", b"/?", b"/a?", b"/%zz?%", b"//host/path", b"/a?b?c", b"/caf%C3%A9?q=%c3%a9",
    ]  # fmt: skip
    async with scripted_origin(lambda _: answer(body=b"x")) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        for target in targets:
            await raw(url, b"GET " + target + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert [request.line for request in origin.asked] == [b"GET " + target + b" HTTP/1.1" for target in targets]


@pytest.mark.parametrize(
    ("line", "target", "host"),
    [
        (b"GET http://b.example:81/x?y HTTP/1.1", b"/x?y", b"b.example:81"),
        (b"GET HTTP://b.example HTTP/1.1", b"/", b"b.example"),
        (b"GET http://b.example?q HTTP/1.1", b"/?q", b"b.example"),
        (b"OPTIONS * HTTP/1.1", b"*", b"a"),
        (b"OPTIONS http://b.example HTTP/1.1", b"*", b"b.example"),
    ],
)
async def test_the_other_forms_of_a_target_are_understood(line: bytes, target: bytes, host: bytes) -> None:
    """RFC 9112, section 3.2: an authority in the target takes the place of Host."""
    async with scripted_origin(lambda _: answer()) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        got = await raw(url, line + b"\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 ")
        assert origin.asked[0].line.split(b" ")[1] == target
        assert origin.asked[0].of(b"host") == [host]


async def test_fields_of_a_connection_stay_on_the_connection() -> None:
    script = answer(
        "200 OK", "Connection: X-Hop, close", "X-Hop: 1", "Keep-Alive: timeout=5", "Trailer: X", "Upgrade: h2c",
        "Proxy-Connection: x", "Proxy-Authenticate: Basic", "X-End: 2",
    )  # fmt: skip
    async with scripted_origin(lambda _: script) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        got = await raw(
            url,
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nKeep-Alive: 1\r\n"
            b"Proxy-Connection: x\r\nUpgrade: websocket\r\nHTTP2-Settings: x\r\nX-End: 3\r\n\r\n",
        )
        names = {name.lower() for name, _ in origin.asked[0].headers}
        assert names == {
            b"host", b"x-end", b"via", b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto",
        }  # fmt: skip
        head = got.lower()
        assert b"x-end: 2" in head
        for gone in (b"x-hop", b"keep-alive", b"trailer", b"upgrade", b"proxy-"):
            assert gone not in head


async def test_fields_keep_their_order_and_their_duplicates() -> None:
    script = answer("200 OK", "Set-Cookie: a=1", "X-A: 1", "Set-Cookie: b=2", "X-A: ", "Link: </x>, </y>", body=b"x")
    async with (
        scripted_origin(lambda _: script) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        got = await client.get("/", headers=[(b"x-b", b"1"), (b"x-b", b"2"), (b"x-c", "é".encode())])
        assert [(n, v) for n, v in got.headers.raw if n in (b"set-cookie", b"x-a", b"link")] == [
            (b"set-cookie", b"a=1"), (b"x-a", b"1"), (b"set-cookie", b"b=2"), (b"x-a", b""), (b"link", b"</x>, </y>"),
        ]  # fmt: skip
        assert [v for n, v in origin.asked[0].headers if n.lower() in (b"x-b", b"x-c")] == [b"1", b"2", "é".encode()]


async def test_blanks_around_values_are_not_part_of_them() -> None:
    async with scripted_origin(lambda _: answer()) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        await raw(url, b"GET / HTTP/1.1\r\nHost: a \t\r\nX-A:\t 1, 2 \r\nX-B: \r\nConnection: close\r\n\r\n")
        request = origin.asked[0]
        assert (request.of(b"host"), request.of(b"x-a"), request.of(b"x-b")) == ([b"a"], [b"1, 2"], [b""])


async def test_the_origin_learns_who_asked_and_nobody_can_pretend() -> None:
    async with scripted_origin(lambda _: answer()) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        await raw(
            url,
            b"GET / HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX_Forwarded_For: 6"
            b"\r\nX-Real-IP: 6.6.6.6\r\nVia: 1.1 edge\r\nConnection: close\r\n\r\n",
        )
        request = origin.asked[0]
        assert request.of(b"forwarded") == [b'for=127.0.0.1;host="shop.example";proto=http']
        assert request.of(b"x-forwarded-for") == [b"127.0.0.1"]
        assert request.of(b"x-forwarded-host") == [b"shop.example"]
        assert request.of(b"x-forwarded-proto") == [b"http"]
        assert request.of(b"x-real-ip") + request.of(b"x_forwarded_for") == []
        assert request.of(b"via") == [b"1.1 edge, 1.1 quaestor"]


async def test_an_answer_that_varies_by_who_asked_is_not_shared() -> None:
    script = answer("200 OK", "Cache-Control: max-age=60", "Vary: Accept, X-Forwarded-For", body=b"x")
    async with (
        scripted_origin(lambda _: script) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        await client.get("/")
        await client.get("/")
        assert len(origin.asked) == 2


async def test_behind_a_trusted_proxy_its_word_is_kept_and_added_to() -> None:
    async with (
        scripted_origin(lambda _: answer()) as origin,
        proxy(ProxyOptions(origin=origin.url, trust_forwarded=True)) as url,
    ):
        await raw(
            url,
            b"GET / HTTP/1.1\r\nHost: inner\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Host: shop\r\nX-Forwarded-Proto: https\r\n"
            b"Connection: close\r\n\r\n",
        )
        request = origin.asked[0]
        assert request.of(b"x-forwarded-for") == [b"9.9.9.9, 127.0.0.1"]
        assert request.of(b"x-forwarded-host") == [b"shop"]
        assert request.of(b"x-forwarded-proto") == [b"https"]


async def test_the_host_field_follows_the_policy() -> None:
    async with scripted_origin(lambda _: answer()) as origin:
        for policy, expected in (
            ("preserve", b"shop.example"),
            ("origin", origin.url.removeprefix("http://").encode()),
        ):
            async with proxy(ProxyOptions(origin=origin.url, host=policy)) as url:
                await raw(url, b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
                assert origin.asked[-1].of(b"host") == [expected]
                await raw(url, b"GET / HTTP/1.0\r\n\r\n")
                assert origin.asked[-1].of(b"host") == [origin.url.removeprefix("http://").encode()]


async def test_date_is_added_where_the_origin_sent_none_and_kept_where_it_did() -> None:
    scripts = {b"/none": answer(), b"/some": answer("200 OK", "Date: Tue, 15 Nov 1994 08:12:31 GMT")}
    async with (
        scripted_origin(lambda request: scripts[request.line.split(b" ")[1]]) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/none")).headers["date"].endswith(" GMT")
        assert (await client.get("/some")).headers.get_list("date") == ["Tue, 15 Nov 1994 08:12:31 GMT"]
