"""What passes through the proxy to the origin and back, byte by byte, on real sockets."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from quaestor.demo.servers import HOST, free_port
from quaestor.proxy.options import ProxyOptions
from tests.end_to_end.scripted_origin import Asked, answer, listening, proxy, raw, read_request, scripted_origin

pytestmark = pytest.mark.anyio


async def test_a_target_reaches_the_origin_exactly_as_it_was_received() -> None:
    targets = [
        b"/a%2Fb//c/../d;e=1?x=%20&x=+&&y", b"/", b"/?", b"/a?", b"/%zz?%", b"//host/path", b"/a?b?c", b"/caf%C3%A9?q=%c3%a9",
    ]  # fmt: skip
    async with scripted_origin(lambda _: answer(body=b"x")) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        for target in targets:
            await raw(url, b"GET " + target + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert [asked.line for asked in origin.asked] == [b"GET " + target + b" HTTP/1.1" for target in targets]


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


async def test_what_belongs_to_a_connection_stays_on_it() -> None:
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
        asked = origin.asked[0]
        assert (asked.of(b"host"), asked.of(b"x-a"), asked.of(b"x-b")) == ([b"a"], [b"1, 2"], [b""])


async def test_the_origin_learns_who_asked_and_nobody_can_pretend() -> None:
    async with scripted_origin(lambda _: answer()) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        await raw(
            url,
            b"GET / HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX_Forwarded_For: 6"
            b"\r\nX-Real-IP: 6.6.6.6\r\nVia: 1.1 edge\r\nConnection: close\r\n\r\n",
        )
        asked = origin.asked[0]
        assert asked.of(b"forwarded") == [b'for=127.0.0.1;host="shop.example";proto=http']
        assert asked.of(b"x-forwarded-for") == [b"127.0.0.1"]
        assert asked.of(b"x-forwarded-host") == [b"shop.example"]
        assert asked.of(b"x-forwarded-proto") == [b"http"]
        assert asked.of(b"x-real-ip") + asked.of(b"x_forwarded_for") == []
        assert asked.of(b"via") == [b"1.1 edge, 1.1 quaestor"]


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
        asked = origin.asked[0]
        assert asked.of(b"x-forwarded-for") == [b"9.9.9.9, 127.0.0.1"]
        assert asked.of(b"x-forwarded-host") == [b"shop"]
        assert asked.of(b"x-forwarded-proto") == [b"https"]


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
        scripted_origin(lambda asked: scripts[asked.line.split(b" ")[1]]) as origin,
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
    def script(asked: Asked) -> bytes:
        method, target, _ = asked.line.split(b" ")
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


async def test_an_answer_is_passed_on_while_it_is_made_and_a_client_that_leaves_ends_it() -> None:
    """Nothing is collected: the first piece arrives although the origin never ends."""
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


async def test_a_client_that_expects_100_continue_is_told_to_go_on() -> None:
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


async def test_date_is_added_where_the_origin_sent_none_and_kept_where_it_did() -> None:
    scripts = {b"/none": answer(), b"/some": answer("200 OK", "Date: Tue, 15 Nov 1994 08:12:31 GMT")}
    async with (
        scripted_origin(lambda asked: scripts[asked.line.split(b" ")[1]]) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
        httpx.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/none")).headers["date"].endswith(" GMT")
        assert (await client.get("/some")).headers.get_list("date") == ["Tue, 15 Nov 1994 08:12:31 GMT"]


async def test_http_1_0_clients_get_an_answer_they_can_read() -> None:
    script = answer("200 OK", "Transfer-Encoding: chunked", body=b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
    async with scripted_origin(lambda _: script) as origin, proxy(ProxyOptions(origin=origin.url)) as url:
        got = (await raw(url, b"GET / HTTP/1.0\r\n\r\n")).lower()
        assert b"transfer-encoding" not in got
        assert b"content-length: 3\r\n" in got
        assert got.endswith(b"\r\n\r\nabc")


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
        proxy(ProxyOptions(origin=origin, read_timeout_s=0.2)) as url,
        proxy(ProxyOptions(origin=f"http://{HOST}:{free_port()}")) as nowhere,
        httpx.AsyncClient() as client,
    ):
        for base, path, status, error in (
            (nowhere, "/", 502, "connection_refused"),
            (url, "/close", 502, "connection_terminated"),
            (url, "/noise", 502, "http_protocol_error"),
            (url, "/999", 502, "http_protocol_error"),
            (url, "/hang", 504, "http_response_timeout"),
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
        proxy(ProxyOptions(origin=origin)) as url,
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
