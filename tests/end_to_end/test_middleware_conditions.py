"""Conditions, HEAD, ranges and request directives in front of a real app."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tests.end_to_end.site import Site, status_of
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio


async def test_a_client_that_has_it_gets_304_on_a_hit_and_on_a_miss() -> None:
    site = Site()
    etag = (await site.get()).headers["etag"]
    for _ in range(2):
        answer = await site.get(if_none_match=f'W/{etag}, "other"')
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
        assert answer.headers["cache-control"] == "public, max-age=0, must-revalidate"
        assert "content-length" not in answer.headers
        assert "content-type" not in answer.headers
        site.engine.registry.kill()
    assert site.runs == 2
    assert (await site.get(if_none_match='"other"')).status_code == 200


async def test_the_handler_does_not_see_the_conditions_of_an_answer_that_may_be_stored() -> None:
    async def handler(request: Request) -> Response:
        reads()
        return Response(status_code=304) if "if-none-match" in request.headers else PlainTextResponse("whole")

    site = Site(handler)
    assert (await site.get(if_none_match='"x"')).text == "whole"
    assert "hit" in status_of(await site.get())


async def test_if_modified_since_is_answered_from_last_modified() -> None:
    async def handler(request: Request) -> Response:
        reads()
        return PlainTextResponse("x", headers={"last-modified": "Wed, 21 Oct 2015 07:28:00 GMT"})

    site = Site(handler)
    await site.get()
    assert (await site.get(if_modified_since="Wed, 21 Oct 2015 07:28:00 GMT")).status_code == 304
    assert (await site.get(if_modified_since="Wed, 21 Oct 2015 07:27:59 GMT")).status_code == 200
    assert (await site.get(if_modified_since="yesterday")).status_code == 200


async def test_head_is_answered_from_a_stored_get_and_never_stored_itself() -> None:
    site = Site()
    first = await site.client.head("/items")
    assert status_of(first) == "Quaestor; fwd=uri-miss; detail=request"
    whole = await site.get()
    head = await site.client.head("/items")
    assert site.runs == 2
    assert head.content == b""
    assert head.headers["content-length"] == str(len(whole.content))
    assert head.headers["etag"] == whole.headers["etag"]


async def test_an_entry_answers_ranges_and_a_handler_s_answer_to_one_is_not_stored() -> None:
    async def handler(request: Request) -> Response:
        reads()
        if "range" in request.headers:
            return Response(b"01", 206, headers={"content-range": "bytes 0-1/10"})
        return PlainTextResponse("0123456789")

    site = Site(handler)
    part = await site.get(range="bytes=0-1")
    assert (part.status_code, part.content) == (206, b"01")
    whole = await site.get()
    assert whole.headers["accept-ranges"] == "bytes"
    partial = await site.get(range="bytes=2-4")
    assert (partial.status_code, partial.content) == (206, b"234")
    assert (partial.headers["content-range"], partial.headers["content-length"]) == ("bytes 2-4/10", "3")
    assert partial.headers["etag"] == whole.headers["etag"]
    two = await site.get(range="bytes=0-1,-1")
    assert two.status_code == 206
    kind, boundary = two.headers["content-type"].split("; boundary=")
    assert kind == "multipart/byteranges"
    assert two.content.count(boundary.encode()) == 3
    assert b"Content-Range: bytes 9-9/10\r\n\r\n9\r\n" in two.content
    assert "content-range" not in two.headers
    nothing = await site.get(range="bytes=10-")
    assert (nothing.status_code, nothing.content, nothing.headers["content-range"]) == (416, b"", "bytes */10")
    assert site.runs == 2


async def test_a_range_that_is_not_understood_or_of_another_answer_gets_the_whole() -> None:
    site = Site()
    whole = await site.get()
    for fields in (
        {"range": "items=0-1"},
        {"range": "bytes=5-1"},
        {"range": "bytes=0-1", "if_range": '"another"'},
        {"range": "bytes=0-1", "if_range": "Tue, 14 Nov 2023 22:13:20 GMT"},
        {"if_range": whole.headers["etag"]},
    ):
        answer = await site.get(**fields)
        assert (answer.status_code, answer.content) == (200, whole.content), fields
    same = await site.get(range="bytes=0-1", if_range=whole.headers["etag"])
    assert same.status_code == 206
    has_it = await site.get(range="bytes=0-1", if_none_match=whole.headers["etag"])
    assert has_it.status_code == 304
    head = await site.client.head("/items", headers={"range": "bytes=0-1"})
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(whole.content)))
    assert site.runs == 1


async def test_a_handler_that_accepts_no_ranges_gets_its_way() -> None:
    async def handler(_: Request) -> Response:
        reads()
        return Response(b"0123", headers={"accept-ranges": "none"})

    site = Site(handler)
    await site.get()
    answer = await site.get(range="bytes=0-1")
    assert (answer.status_code, answer.content, answer.headers["accept-ranges"]) == (200, b"0123", "none")


async def test_only_if_cached_is_answered_from_an_entry_or_with_504() -> None:
    site = Site()
    assert (await site.get(cache_control="only-if-cached")).status_code == 504
    assert site.runs == 0
    await site.get()
    assert (await site.get(cache_control="only-if-cached")).status_code == 200
    assert site.runs == 1


async def test_no_store_requests_leave_no_entry_behind_and_no_cache_is_answered_by_the_exact_cache() -> None:
    site = Site()
    await site.get(cache_control="no-store")
    assert "stored" in status_of(await site.get())
    assert "hit" in status_of(await site.get(cache_control="no-cache"))
    assert "hit" in status_of(await site.get(cache_control="max-age=0"))
