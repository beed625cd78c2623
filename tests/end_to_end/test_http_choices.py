"""Freedoms of a shared cache (RFC 9111, 9110), as the middleware uses them, and its Cache-Status (RFC 9211)."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor import cached
from quaestor.errors import ConfigurationError
from quaestor.proxy.options import ProxyOptions
from quaestor.settings import Settings
from tests.end_to_end.scripted_origin import Asked, answer, proxy, raw, scripted_origin
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio

DATE = "Tue, 14 Nov 2023 22:13:20 GMT"
A_SECOND_BEFORE = "Tue, 14 Nov 2023 22:13:19 GMT"
A_DAY_BEFORE = "Mon, 13 Nov 2023 22:13:20 GMT"


def saying(*, read: bool = False, status: int = 200, **fields: str) -> Any:
    async def handler(request: Request) -> Response:
        if read:
            reads()
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        return PlainTextResponse("x", status, headers=named)

    return handler


async def test_a_date_stands_for_a_last_modified_that_is_missing() -> None:
    """A date at or after the entry's `Date` counts as current, because the entry's lifetime vouches for it (RFC 9111,
    section 4.3.2).
    """
    site = Site(saying(cache_control="max-age=60", date=DATE), explicit=True)
    await site.get()
    assert (await site.get(if_modified_since=DATE)).status_code == 304
    assert (await site.get(if_modified_since=A_SECOND_BEFORE)).status_code == 200


async def test_answers_that_queries_guard_have_no_such_date() -> None:
    """Two versions can be made within its second, and who has the older one would keep it for ever."""
    site = Site(saying(read=True, date=DATE))
    await site.get()
    answers = await site.get(if_modified_since=DATE)
    assert ("hit" in status_of(answers), answers.status_code) == (True, 200)


@pytest.mark.parametrize(
    "fields",
    [
        {"if_match": '"x"'},
        {"if_unmodified_since": DATE},
        {"cookie": "a=b"},
        {"authorization": "Bearer x"},
        {"range": "bytes=0-0"},
    ],
)
async def test_only_if_cached_gets_a_stored_answer_or_504(fields: dict[str, str]) -> None:
    """The handler never runs for such a request, also where the cache would otherwise pass the request on."""
    site = Site()
    refused = await site.get(cache_control="only-if-cached", **fields)
    assert (refused.status_code, site.runs) == (504, 0)
    head = await site.client.head("/items", headers={"cache-control": "only-if-cached", "if-match": '"x"'})
    assert (head.status_code, site.runs) == (504, 0)


async def test_a_route_that_the_cache_keeps_out_of_answers_for_itself() -> None:
    site = Site(routes={"/items": cached(bypass=True)})
    assert (await site.get(cache_control="only-if-cached")).status_code == 200


async def test_the_cache_says_why_it_asked() -> None:
    """By the method; because nothing is known under the URL; because what is known there is for other fields."""
    site = Site(saying(read=True, vary="x-kind"))
    assert status_of(await site.client.post("/items")) == "Quaestor; fwd=method"
    assert status_of(await site.client.options("/items")) == "Quaestor; fwd=method"
    assert status_of(await site.client.head("/items")) == "Quaestor; fwd=uri-miss; detail=request"
    assert status_of(await site.get(x_kind="a")) == "Quaestor; fwd=uri-miss; stored"
    assert status_of(await site.get(x_kind="b")) == "Quaestor; fwd=vary-miss; stored"
    assert (
        status_of(await site.client.head("/items", headers={"x-kind": "c"}))
        == "Quaestor; fwd=vary-miss; detail=request"
    )
    site.engine.registry.kill()
    assert status_of(await site.get(x_kind="b")) == "Quaestor; fwd=uri-miss; stored", (
        "it was known, and a write ended it"
    )


async def test_a_lifetime_is_guessed_only_if_somebody_says_so() -> None:
    """RFC 9111, section 4.2.2: a tenth of the time since the last change, here."""
    handler = saying(date=DATE, last_modified=A_DAY_BEFORE)
    never = Site(handler, explicit=True)
    await never.get()
    assert "hit" not in status_of(await never.get())
    site = Site(handler, explicit=True, heuristic_fraction=0.1)
    await site.get()
    site.engine.clock.now_ms += 8_639_000
    assert status_of(await site.get()) == "Quaestor; hit; ttl=1"
    site.engine.clock.now_ms += 2_000
    assert "fwd=stale" in status_of(await site.get())


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_a_share_lies_between_nothing_and_the_whole(fraction: float) -> None:
    with pytest.raises(ConfigurationError, match=r"heuristic_fraction=.* must be a number from 0 to 1"):
        Settings(heuristic_fraction=fraction)


@pytest.mark.parametrize(
    ("name", "first_value", "other", "alike"),
    [
        ("accept-language", "en, de", "EN,dE", True),
        ("accept-language", "en;q=0.5, de", "en;q=0.5  ,\tde", True),
        ("accept-language", "en, de", "de, en", False),  # many origins prefer what comes first
        ("x-kind", "a, b", "a,b", True),
        ("x-kind", "a, b", "A, b", False),
        ("x-kind", '"a, b"', '"a,b"', False),
        ("x-kind", "a b", "ab", False),
    ],
)
async def test_an_origin_s_vary_takes_alike_what_means_the_same(
    name: str, first_value: str, other: str, alike: bool
) -> None:
    site = Site(saying(cache_control="max-age=60", vary=name), explicit=True)
    for value in (first_value, first_value):
        await site.client.get("/items", headers={name: value})
    again = await site.client.get("/items", headers={name: other})
    assert ("hit" in status_of(again)) is alike


async def test_a_field_that_the_handler_reads_is_a_key_in_its_original_spelling() -> None:
    """A handler may show the field as it was sent, so each spelling has its own entry."""

    async def handler(request: Request) -> Response:
        reads()
        return PlainTextResponse(request.headers.get("x-kind", ""))

    site = Site(handler)
    for value in ("a, b", "a,b"):
        assert (await site.get(x_kind=value)).text == value


@pytest.mark.parametrize("method", [b"BREW", b"m-search", b"X!1", b"PROPFIND", b"QUERY"])
async def test_a_proxy_passes_methods_on_that_nobody_has_heard_of(method: bytes) -> None:
    """RFC 9110, section 9.1: methods are an open set. Their bodies and the next request on the connection are not mistaken."""

    def script(request: Asked) -> bytes:
        return answer("200 OK", body=request.line + b"|" + request.body)

    options_of = Settings(explicit=True, grid=False, early_refresh=0.0)
    async with scripted_origin(script) as origin, proxy(ProxyOptions(origin=origin.url), options_of) as url:
        lines_read = await raw(
            url,
            method + b" /pot?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
    assert lines_read.count(b"HTTP/1.1 200") == 2
    assert method + b" /pot?x=1 HTTP/1.1|abc" in lines_read
    assert b"GET /next HTTP/1.1|" in lines_read
    assert b"Quaestor; fwd=method" in lines_read


@pytest.mark.parametrize(
    "head", [b"BREW", b"BR EW / HTTP/1.1", b"B\x00W / HTTP/1.1", b"PRI * HTTP/2.0", b"\x16\x03\x01 / HTTP/1.1"]
)
async def test_malformed_requests_are_refused_as_before(head: bytes) -> None:
    async with (
        scripted_origin(lambda request: answer(body=b"reached")) as origin,
        proxy(ProxyOptions(origin=origin.url)) as url,
    ):
        lines_read = await raw(url, head + b"\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b"reached" not in lines_read
    assert not origin.asked
