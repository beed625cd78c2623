"""The header fields that go out, variants, and the URLs that CDNs are handed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tests.end_to_end.site import Site
from tests.hand_driven import TaggingCdn, reads

pytestmark = pytest.mark.anyio


async def test_cdns_and_browsers_get_their_own_lifetimes() -> None:
    cdn = TaggingCdn()
    site = Site(cdn=[cdn], client_ttl="none")
    for _ in range(2):
        answer = await site.get()
        assert answer.headers["cache-control"] == "public, max-age=0, must-revalidate"
        assert answer.headers["cdn-cache-control"] == "max-age=60"
        assert answer.headers["xkey"] == "q-test:1"
    assert site.engine.sketch.reads == {"/items": site.engine.clock.now_ms + 62_000}
    assert site.engine.cdn == [cdn]


class BusyCdn(TaggingCdn):
    """A CDN that may be behind with its purges."""

    live_ms: int | None = None

    def copies_live_ms(self) -> int | None:
        return self.live_ms


async def test_while_a_cdn_is_behind_with_its_purges_it_gets_short_lifetimes() -> None:
    """While a CDN could not be purged in time, all entries get short lifetimes, also ones handed out before.

    Lifetimes are long again when the CDN has caught up.
    """
    cdn = BusyCdn()
    site = Site(cdn=[cdn], client_ttl="none")
    lifetimes = []
    for live_ms in (None, 5_000, None):
        cdn.live_ms = live_ms
        lifetimes.append((await site.get()).headers["cdn-cache-control"])
        site.engine.clock.now_ms += 1_000
    assert lifetimes == ["max-age=60", "max-age=5", "max-age=60"]
    assert site.runs == 1


async def test_without_permission_for_copies_the_sketch_lists_none() -> None:
    site = Site(client_ttl="none")
    answer = await site.get()
    assert "cdn-cache-control" not in answer.headers
    assert site.engine.sketch.reads == {}


async def test_the_handler_s_lifetime_caps_ours() -> None:
    async def handler(request: Request) -> Response:
        reads()
        return PlainTextResponse("x", headers={"cache-control": "max-age=5, s-maxage=20, immutable"})

    site = Site(handler, client_ttl="estimated", cdn=[TaggingCdn()])
    answer = await site.get()
    assert answer.headers["cache-control"] == "public, max-age=5, must-revalidate"
    assert answer.headers["cdn-cache-control"] == "max-age=20"
    site.engine.clock.now_ms += 20_000
    await site.get()
    assert site.runs == 2


async def test_headers_of_the_handler_keep_their_order_and_duplicates_and_its_etag() -> None:
    async def handler(request: Request) -> Response:
        reads()
        response = PlainTextResponse("x", headers={"etag": 'W/"mine"'})
        response.headers.append("link", "<a>")
        response.headers.append("link", "<b>")
        return response

    site = Site(handler)
    for _ in range(2):
        answer = await site.get()
        assert answer.headers.get_list("link") == ["<a>", "<b>"]
        assert answer.headers["etag"] == 'W/"mine"'


async def test_duplicate_set_cookie_headers_pass_through() -> None:
    async def handler(request: Request) -> Response:
        reads()
        response = PlainTextResponse("x")
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    site = Site(handler)
    assert len((await site.get()).headers.get_list("set-cookie")) == 2


async def test_explanations_are_sent_only_when_asked_for() -> None:
    assert "x-quaestor-explain" not in (await Site().get()).headers
    site = Site(debug_header=True)
    for layer in ("the handler", "memory"):
        explained = (await site.get()).headers["x-quaestor-explain"]
        assert explained == (
            f"from {layer}, stored 0 s ago. lives 60000 ms in the store, 0 s in CDNs, 0 s in browsers. "
            "key: method and URL; sharing: undeclared; policy: default. "
            "depends on find on shop.items by (value): exact, found by hash on value; test:1"
        )


async def test_outer_middleware_may_change_messages_without_changing_the_entry() -> None:
    """Shared header lists would collect the additions of outer middlewares, hit after hit."""
    site = Site()

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        async def add(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-outer", b"1"))
            else:
                message["body"] = message["body"].upper()
            await send(message)

        await site.app(scope, receive, add)

    transport = httpx.ASGITransport(app=outer)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
        for _ in range(3):
            answer = await client.get("/items")
            assert answer.headers.get_list("x-outer") == ["1"]
    assert b"version" in (await site.get()).content


async def test_variants_are_stored_side_by_side() -> None:
    async def handler(request: Request) -> Response:
        reads()
        return PlainTextResponse(request.headers.get("accept-language", "-"), headers={"vary": "Accept-Language"})

    site = Site(handler)
    for _ in range(3):
        assert (await site.get(accept_language="de")).text == "de"
        assert (await site.get(accept_language="en")).text == "en"
        assert (await site.get()).text == "-"
    assert site.runs == 3


async def test_compressed_and_plain_answers_of_an_inner_middleware_are_not_mixed_up() -> None:
    async def handler(request: Request) -> Response:
        reads()
        return PlainTextResponse("x" * 2000)

    site = Site(handler, inner=[Middleware(GZipMiddleware)])
    for _ in range(2):
        assert "content-encoding" not in (await site.get(accept_encoding="identity")).headers
        packed = await site.get(accept_encoding="gzip, br")
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.text == "x" * 2000
        assert (await site.get(accept_encoding="br,gzip")).headers["content-encoding"] == "gzip"
    assert site.runs == 2


async def test_every_spelling_handed_to_a_cdn_is_known_to_the_index_first() -> None:
    site = Site(cdn=[TaggingCdn()], sort_query=True)
    await site.get("/items?a=1&b=2")
    await site.get("/items?b=2&a=1")
    await site.get("/items?b=2&a=1")
    assert site.runs == 1
    dependents = await site.engine.index.claim(["test:1"], now_ms=site.engine.clock.now_ms)
    assert sorted(url for dependent in dependents for url in dependent.urls) == [
        "http://shop.test/items?a=1&b=2",
        "http://shop.test/items?b=2&a=1",
    ]
    assert all(dependent.tags == ("q-test:1",) for dependent in dependents)


async def test_too_many_spellings_go_out_without_leave_to_keep() -> None:
    site = Site(cdn=[TaggingCdn()], sort_query=True)
    names = "abcdefghijklmnopqrst"
    for n in range(20):
        answer = await site.get(f"/items?{'&'.join(names[n:] + names[:n])}")
    assert site.runs == 1
    assert answer.headers["cache-control"] == "no-store"
    assert "cdn-cache-control" not in answer.headers
