"""Answers that are not stored, and the parts of them that stay as they were."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor.capture import uncacheable
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("field", "header"),
    [("authorization", "authorization"), ("cookie", "cookie"), ("x-api-key", "credentials"), ("x-user", "credentials")],
)
async def test_requests_with_credentials_bypass_the_cache(field: str, header: str) -> None:
    site = Site()
    await site.get()
    answer = await site.get(**{field: "x=y"})
    assert site.runs == 2
    assert answer.headers["cache-control"] == "private, no-cache"
    assert status_of(answer) == f"Quaestor; fwd=bypass; detail={header}"


@pytest.mark.parametrize(
    ("headers", "reason", "sent"),
    [
        ({"set-cookie": "a=b"}, "set-cookie", "private, no-cache"),
        ({"cache-control": "no-store"}, "no-store", "no-store"),
        ({"cache-control": "private, max-age=5"}, "private", "private, max-age=5"),
        ({"cache-control": "no-cache"}, "no-cache", "no-cache"),
        ({"vary": "Accept, *"}, "vary", "no-store"),
        ({"cache-control": "max-age=0"}, "lifetime", "no-store"),
        ({"expires": "0"}, "lifetime", "no-store"),
    ],
)
async def test_answers_that_may_not_be_shared_are_not_stored(headers: dict[str, str], reason: str, sent: str) -> None:
    async def handler(request: Request) -> Response:
        reads()
        return PlainTextResponse("x", headers=headers)

    site = Site(handler)
    await site.get()
    site.client.cookies.clear()
    answer = await site.get()
    assert site.runs == 2
    assert answer.headers["cache-control"] == sent
    assert site.engine.count("uncacheable", reason=reason) == 2


@pytest.mark.parametrize("status", [302, 400, 403, 500, 503])
async def test_errors_and_redirects_are_neither_stored_nor_touched(status: int) -> None:
    async def handler(request: Request) -> Response:
        reads()
        return Response(b"no", status, headers={"location": "/x"})

    site = Site(handler)
    await site.get()
    answer = await site.get()
    assert (site.runs, answer.status_code) == (2, status)
    assert "cache-control" not in answer.headers


async def test_a_404_that_depends_on_a_read_is_stored() -> None:
    async def handler(request: Request) -> Response:
        reads()
        return PlainTextResponse("none", 404)

    site = Site(handler)
    await site.get()
    assert ((await site.get()).status_code, site.runs) == (404, 1)


async def test_an_answer_without_reads_keeps_the_handler_s_word() -> None:
    async def handler(request: Request) -> Response:
        return PlainTextResponse("x", headers={"cache-control": "max-age=9"} if request.url.query else {})

    site = Site(handler)
    assert "cache-control" not in (await site.get("/a")).headers
    assert (await site.get("/a?said")).headers["cache-control"] == "max-age=9"
    assert site.engine.count("uncacheable", reason="no-reads") == 2


async def test_answers_that_the_handler_declares_uncacheable_are_not_stored() -> None:
    async def handler(request: Request) -> Response:
        reads()
        uncacheable("reads a file")
        return PlainTextResponse("x")

    site = Site(handler)
    await site.get()
    await site.get()
    assert site.runs == 2


@pytest.mark.parametrize(
    "headers",
    [
        {"x-http-method-override": "DELETE"},
        {"x-original-url": "/admin"},
        {"transfer-encoding": "chunked"},
        {"content-length": "3"},
        {"if-match": '"x"'},
    ],
)
async def test_requests_that_may_mean_something_else_are_neither_stored_nor_answered_from_cache(
    headers: dict[str, str],
) -> None:
    site = Site()
    await site.get()
    answer = await site.client.get("/items", headers=headers)
    assert (site.runs, answer.headers["cache-control"]) == (2, "no-store")
    await site.client.get("/items2", headers=headers)
    await site.get("/items2")
    assert site.runs == 4


async def test_other_methods_pass_through_and_say_so() -> None:
    site = Site()
    answer = await site.client.post("/items")
    assert answer.headers["cache-status"] == "Quaestor; fwd=method"
    await site.client.post("/items")
    assert site.runs == 2
