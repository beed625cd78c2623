"""Enormous, malformed and contradictory header fields: each request gets an answer, and no wrong entry is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor.middleware import QuaestorMiddleware
from tests.end_to_end.site import Site, raw_get, status_of
from tests.hand_driven import HandEngine, reads
from tests.support import eventually

pytestmark = pytest.mark.anyio

ENORMOUS = "x" * 20_000


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"cache-control": ENORMOUS},
        {"cache-control": ',,,=,;;,max-age=,=5,"no-store'},
        {"cache-control": 'no-cache="' + "a," * 5000},
        {"pragma": ENORMOUS},
        {"if-none-match": '"a", ' * 4000},
        {"if-none-match": 'W/"x'},
        {"if-modified-since": ENORMOUS},
        {"range": "bytes=" + "0-1," * 5000},
        {"range": "bytes=" + "9" * 400 + "-"},
        {"range": "bytes=-" + "9" * 30},
        {"if-range": ENORMOUS, "range": "bytes=0-0"},
        {"accept-language": ENORMOUS},
    ],
)
async def test_hostile_fields_of_a_client_get_an_answer_and_others_get_theirs(
    fields: dict[str, str], explicit: bool
) -> None:
    async def handler(_: Request) -> Response:
        if not explicit:
            reads()
        return PlainTextResponse("whole", headers={"cache-control": "max-age=60", "vary": "accept-language"})

    site = Site(handler, explicit=explicit)
    for _ in range(2):
        answer = await site.client.get("/items", headers=fields)
        assert answer.status_code in (200, 206, 416)
        assert answer.text in ("whole", "w", "")
    await site.get()
    plain = await site.get()
    assert (plain.status_code, plain.text) == (200, "whole")
    assert "hit" in status_of(plain)


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ([("cache-control", ENORMOUS)], False),
        ([("cache-control", "max-age=60" + " " * 9000)], False),
        ([("cache-control", "max-age=60"), ("vary", ENORMOUS)], False),
        ([("cache-control", "max-age=60"), ("vary", ",".join(f"h{n}" for n in range(40)))], False),
        ([("cache-control", "max-age=60"), ("vary", "a b")], False),
        ([("cache-control", "max-age=60"), ("etag", ENORMOUS)], True),
        ([("cache-control", "max-age=60"), ("etag", '"a'), ("etag", '"b"')], True),
        ([("cache-control", "max-age=60"), ("cache-groups", ENORMOUS)], True),
        ([("cache-control", "max-age=60"), ("cache-groups", '"' + "g" * 300 + '"')], True),
        ([("cache-control", "max-age=60"), ("age", ENORMOUS)], True),
        ([("cache-control", "max-age=60"), ("expires", ENORMOUS), ("date", ENORMOUS)], True),
        ([("cache-control", "max-age=60"), ("connection", ENORMOUS)], True),
        ([("cache-control", "max-age=60, max-age=0")], False),
        ([("cache-control", "max-age=60"), ("cache-control", "no-store")], False),
    ],
)
async def test_of_a_handler_s_answers_only_the_understood_ones_are_kept(
    fields: list[tuple[str, str]], kept: bool, explicit: bool
) -> None:
    async def handler(_: Request) -> Response:
        if not explicit:
            reads()
        response = PlainTextResponse("whole")
        response.raw_headers += [(name.encode(), value.encode()) for name, value in fields]
        return response

    site = Site(handler, explicit=explicit)
    for _ in range(2):
        answer = await site.get()
        assert (answer.status_code, answer.text) == (200, "whole")
    assert site.runs == (1 if kept else 2)


async def test_an_unsafe_answer_s_garbage_outdates_nothing_and_harms_nobody() -> None:
    async def handler(request: Request) -> Response:
        if request.method == "GET":
            return PlainTextResponse("x", headers={"cache-control": "max-age=60"})
        response = PlainTextResponse("done")
        response.raw_headers += [
            (b"location", b"http://[\xff" + b"x" * 20_000),
            (b"content-location", b"//evil.test/items"),
            (b"cache-group-invalidation", b'"a' * 9000),
        ]
        return response

    site = Site(handler, explicit=True)
    await site.get("/items")
    assert (await site.client.post("/other")).text == "done"
    site.engine.clock.now_ms += 1
    assert "hit" in status_of(await site.get("/items"))


@pytest.mark.parametrize("explicit", [False, True])
async def test_a_handler_that_never_ends_is_ended_with_its_client_and_leaves_nothing(explicit: bool) -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def handler(_: Request) -> Response:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return PlainTextResponse("never")

    site = Site(handler, explicit=explicit)
    request = asyncio.create_task(raw_get(site))
    await eventually(began.is_set)
    request.cancel()
    await asyncio.wait((request,))
    await eventually(ended.is_set)
    assert len(site.engine.read_path.coalescing) == 0
    assert site.engine.read_path.lookup.valid("http://shop.test/s", site.engine.clock()) is None


@pytest.mark.parametrize("content_type", [b"text/plain", b"text/event-stream"])
async def test_in_explicit_mode_too_what_is_too_large_and_streams_go_through_as_they_come(content_type: bytes) -> None:
    first, go_on = asyncio.Event(), asyncio.Event()
    sent: list[Any] = []
    size = 100 if content_type == b"text/plain" else 10

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"cache-control", b"max-age=60"), (b"content-type", content_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"end"})

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            first.set()

    engine = HandEngine(explicit=True, max_body_bytes=50)
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "path": "/s", "raw_path": b"/s", "query_string": b"",
        "headers": [(b"host", b"shop.test")], "root_path": "",
    }  # fmt: skip
    request = asyncio.create_task(QuaestorMiddleware(app, quaestor=engine)(scope, receive, send))
    await eventually(first.is_set)
    go_on.set()
    await request
    assert b"".join(message.get("body", b"") for message in sent) == b"x" * size + b"end"
    assert dict(sent[0]["headers"])[b"cache-control"] == b"max-age=60"
    assert engine.read_path.lookup.valid("http://shop.test/s", engine.clock()) is None
