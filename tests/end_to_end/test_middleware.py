"""The middleware in front of real Starlette and FastAPI apps: what is stored, who may keep it, and what stays as it was.

The grid is driven by hand here, so that every registration dies exactly when a test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI
from fastapi import Request as FastApiRequest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from middleware import QuaestorMiddleware
from quaestor.capture import uncacheable
from quaestor.errors import NotCacheableError, RegistrationRefusedError
from tests.hand_driven import HandEngine, TaggingCdn, reads

pytestmark = pytest.mark.anyio

Handler = Callable[[Request], Awaitable[Response]]


class Site:
    """One app with one page at every path, behind the middleware. `runs` counts how often the handler ran."""

    def __init__(
        self, handler: Handler | None = None, *, inner: list[Middleware] | None = None, **settings: Any
    ) -> None:
        cdn = settings.pop("cdn", ())
        self.engine = HandEngine(**settings)
        self.runs = 0
        self.version = 1

        async def page(request: Request) -> Response:
            self.runs += 1
            if handler is not None:
                return await handler(request)
            reads()
            return JSONResponse({"version": self.version, "query": request.url.query})

        routes = [Route("/{rest:path}", page, methods=["GET", "POST"])]
        app = Starlette(routes=routes, middleware=inner or [])
        self.app = QuaestorMiddleware(app, quaestor=self.engine, cdn=cdn)
        transport = httpx.ASGITransport(app=self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://shop.test")

    async def get(self, path: str = "/items", **headers: str) -> httpx.Response:
        return await self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def status_of(response: httpx.Response) -> str:
    return response.headers["cache-status"]


# Misses, hits and deaths


async def test_the_second_get_is_answered_without_the_handler() -> None:
    site = Site()
    first, second = await site.get(), await site.get()
    assert site.runs == 1
    assert first.content == second.content
    assert status_of(first) == "Quaestor; fwd=uri-miss; stored"
    assert status_of(second) == "Quaestor; hit; ttl=60"
    assert first.headers["etag"] == second.headers["etag"]
    assert first.headers["etag"].startswith('"')
    assert site.engine.count("requests", outcome="hit") == 1
    assert site.engine.count("requests", outcome="miss") == 1


async def test_age_grows_and_an_expired_entry_is_not_served() -> None:
    site = Site()
    await site.get()
    site.engine.clock.now_ms += 10_900
    hit = await site.get()
    assert (hit.headers["age"], status_of(hit)) == ("10", "Quaestor; hit; ttl=49")
    site.engine.clock.now_ms += 49_100
    assert "stored" in status_of(await site.get())
    assert site.runs == 2


async def test_a_dead_registration_is_never_served_again() -> None:
    site = Site()
    await site.get()
    site.engine.registry.kill()
    site.version = 2
    assert (await site.get()).json()["version"] == 2
    assert site.runs == 2
    assert (await site.get()).json()["version"] == 2
    assert site.runs == 2


async def test_nothing_is_served_from_cache_while_the_grid_cannot_vouch_and_nobody_may_keep_the_answer() -> None:
    site = Site()
    await site.get()
    site.engine.registry.up = False
    answer = await site.get()
    assert site.runs == 2
    assert answer.headers["cache-control"] == "no-store"
    assert status_of(answer) == "Quaestor; fwd=bypass; detail=not-serving"
    site.engine.registry.up = True
    assert "hit" in status_of(await site.get())


async def test_keys_order_the_query_by_name_and_keep_hosts_apart() -> None:
    site = Site()
    await site.get("/items?b=1&a=2")
    assert "hit" in status_of(await site.get("/items?a=2&b=1"))
    assert "hit" not in status_of(await site.get("/items?a=2&b=1", host="other.test"))
    assert "hit" not in status_of(await site.get("/items?a=1&b=2"))


async def test_the_watermark_is_taken_before_the_handler_runs() -> None:
    async def handler(request: Request) -> Response:
        site.engine.registry.newest = 99
        reads()
        return PlainTextResponse("ok")

    site = Site(handler)
    site.engine.registry.newest = 41
    await site.get()
    [(_, since)] = site.engine.registry.registered
    assert since == 41


async def test_a_registration_that_dies_while_the_answer_is_stored_takes_the_answer_with_it() -> None:
    site = Site()

    class Deadly(type(site.engine.index)):
        async def add(self, dependent: Any) -> None:
            await super().add(dependent)
            site.engine.registry.kill(*dependent.registrations)

    site.engine.read_path._index = Deadly()
    answer = await site.get()
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers
    assert site.engine.count("uncacheable", reason="died") == 1
    assert site.engine.registry.leases == {"test:1": 0}, "certainly not stored: the grid may forget it"
    await site.get()
    assert site.runs == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RegistrationRefusedError("too slow"), "refused"),
        (NotCacheableError(("view",)), "view"),
        (ZeroDivisionError("a mistake"), "failed"),
    ],
)
async def test_whatever_registering_raises_the_handler_s_answer_goes_out_and_nobody_may_keep_it(
    error: Exception, reason: str
) -> None:
    site = Site()

    async def refuse() -> None:
        raise error

    site.engine.registry.before_register = refuse
    answer = await site.get()
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert site.engine.count("uncacheable", reason=reason) == 1
    site.engine.registry.before_register = None
    site.engine.clock.now_ms += 10_000
    await site.get()
    assert "hit" in status_of(await site.get())


async def test_a_sketch_that_is_down_costs_caching_not_answers() -> None:
    site = Site(client_ttl="estimated")
    site.engine.sketch.down = True
    answer = await site.get()
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert site.engine.count("failures", part="sketch") == 1
    assert len(site.engine.store) == 0
    site.engine.sketch.down = False
    await site.get()
    assert "hit" in status_of(await site.get())


# Conditions, HEAD, ranges, request directives


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
    assert "bypass" in status_of(first)
    whole = await site.get()
    head = await site.client.head("/items")
    assert site.runs == 2
    assert head.content == b""
    assert head.headers["content-length"] == str(len(whole.content))
    assert head.headers["etag"] == whole.headers["etag"]


async def test_a_range_is_answered_whole_from_an_entry_and_passed_to_the_handler_otherwise() -> None:
    async def handler(request: Request) -> Response:
        reads()
        if "range" in request.headers:
            return Response(b"ab", 206, headers={"content-range": "bytes 0-1/4"})
        return Response(b"abcd")

    site = Site(handler)
    part = await site.get(range="bytes=0-1")
    assert (part.status_code, part.content) == (206, b"ab")
    await site.get()
    whole = await site.get(range="bytes=0-1")
    assert (whole.status_code, whole.content) == (200, b"abcd")
    assert site.runs == 2


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


# What is not stored


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
    assert (await site.get("/a")).headers["cache-control"] == "no-cache"
    assert (await site.get("/a?said")).headers["cache-control"] == "max-age=9"
    assert site.engine.count("uncacheable", reason="no-reads") == 2


async def test_what_the_handler_declares_uncacheable_is_not_stored() -> None:
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


async def test_other_methods_pass_through_untouched() -> None:
    site = Site()
    answer = await site.client.post("/items")
    assert "cache-status" not in answer.headers
    await site.client.post("/items")
    assert site.runs == 2


# Headers out


async def test_cdns_and_browsers_are_told_their_own_lifetimes() -> None:
    cdn = TaggingCdn()
    site = Site(cdn=[cdn], client_ttl="none")
    for _ in range(2):
        answer = await site.get()
        assert answer.headers["cache-control"] == "public, max-age=0, must-revalidate"
        assert answer.headers["cdn-cache-control"] == "max-age=60"
        assert answer.headers["xkey"] == "q-test:1"
    assert site.engine.sketch.reads == {"/items": site.engine.clock.now_ms + 62_000}
    assert site.engine.cdn == [cdn]


async def test_without_anybody_who_may_keep_copies_the_sketch_is_not_told_of_any() -> None:
    site = Site()
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
    for _ in range(2):
        explained = (await site.get()).headers["x-quaestor-explain"]
        assert explained == "depends on find on shop.items by (value); lives 60000 ms; test:1"


async def test_whoever_wraps_the_middleware_may_change_what_it_sends() -> None:
    """Shared header lists would collect what outer middlewares add, hit after hit."""
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


# Variants


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


# Streaming, background tasks, exceptions


async def test_an_answer_in_pieces_is_stored_whole() -> None:
    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"a"
            reads()
            yield b"b"

        return StreamingResponse(pieces())

    site = Site(handler)
    for _ in range(2):
        answer = await site.get()
        assert (answer.content, answer.headers["content-length"]) == (b"ab", "2")
    assert site.runs == 1


async def test_a_base_http_middleware_inside_does_not_prevent_storing() -> None:
    async def dispatch(request: FastApiRequest, call_next: Any) -> Any:
        return await call_next(request)

    site = Site(inner=[Middleware(BaseHTTPMiddleware, dispatch=dispatch)])
    await site.get()
    assert "hit" in status_of(await site.get())


async def test_a_body_above_the_limit_streams_through_unstored() -> None:
    async def handler(request: Request) -> Response:
        reads()

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(4):
                yield b"x" * 600

        return StreamingResponse(pieces())

    site = Site(handler, max_body_bytes=1000)
    answer = await site.get()
    assert len(answer.content) == 2400
    assert answer.headers["cache-control"] == "no-store"
    assert site.engine.count("uncacheable", reason="too-large") == 1
    await site.get()
    assert site.runs == 2


async def test_pieces_beyond_the_limit_reach_the_client_before_the_handler_has_finished() -> None:
    go_on = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"x" * 2000
            await go_on.wait()
            yield b"y"

        return StreamingResponse(pieces())

    site = Site(handler, max_body_bytes=1000)
    sent = await _raw_get(site, until_body=True)
    assert [message["type"] for message in sent[:2]] == ["http.response.start", "http.response.body"]
    assert sent[1]["body"] == b"x" * 2000


async def test_event_streams_are_passed_on_as_they_come() -> None:
    forever = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            reads()
            yield b"data: 1\n\n"
            await forever.wait()

        return StreamingResponse(events(), media_type="text/event-stream")

    site = Site(handler)
    sent = await _raw_get(site, until_body=True)
    assert sent[1]["body"] == b"data: 1\n\n"


async def test_a_slow_answer_in_pieces_is_released_instead_of_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("middleware.exchange.HOLD_S", 0.01)
    forever = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            reads()
            yield b"first"
            await forever.wait()

        return StreamingResponse(pieces())

    site = Site(handler)
    sent = await _raw_get(site, until_body=True)
    assert sent[1]["body"] == b"first"
    assert dict(sent[0]["headers"])[b"cache-control"] == b"no-store"


async def test_background_tasks_run_after_the_answer_and_may_write() -> None:
    engine = HandEngine()
    app = FastAPI()
    done: list[str] = []

    @app.get("/items")
    def items(background: BackgroundTasks) -> dict[str, int]:
        reads()
        background.add_task(lambda: done.append("done"))
        return {"n": 1}

    app.add_middleware(QuaestorMiddleware, quaestor=engine)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x.test") as client:
        first, second = await client.get("/items"), await client.get("/items")
    assert first.json() == second.json() == {"n": 1}
    assert "hit" in status_of(second)
    assert done == ["done"]


async def test_exceptions_reach_the_app_s_own_handlers_and_nothing_is_stored() -> None:
    async def handler(request: Request) -> Response:
        reads()
        raise LookupError("boom")

    site = Site(handler)
    for _ in range(2):
        with pytest.raises(LookupError, match="boom"):
            await site.get()
    assert site.runs == 2
    assert len(site.engine.read_path.flights) == 0


# Coalescing


async def test_concurrent_misses_run_the_handler_once() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        reads()
        arrived.set()
        await go_on.wait()
        return PlainTextResponse("x")

    site = Site(handler)
    requests = [asyncio.create_task(site.get()) for _ in range(20)]
    await arrived.wait()
    await _until_waiting(requests)
    go_on.set()
    answers = await asyncio.gather(*requests)
    assert site.runs == 1
    assert {answer.text for answer in answers} == {"x"}
    assert sorted({status_of(answer) for answer in answers}) == [
        "Quaestor; fwd=uri-miss; collapsed",
        "Quaestor; fwd=uri-miss; stored",
    ]
    assert site.engine.count("requests", outcome="coalesced") == 19


async def test_followers_of_an_unstorable_answer_run_their_own_handlers() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        arrived.set()
        await go_on.wait()
        return PlainTextResponse(str(site.runs), headers={"cache-control": "private"})

    site = Site(handler)
    requests = [asyncio.create_task(site.get()) for _ in range(5)]
    await arrived.wait()
    await _until_waiting(requests)
    go_on.set()
    await asyncio.gather(*requests)
    assert site.runs == 5


async def test_a_leader_that_fails_hands_over_to_one_follower() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        reads()
        if site.runs == 1:
            arrived.set()
            await go_on.wait()
            raise LookupError("boom")
        return PlainTextResponse("x")

    site = Site(handler)
    requests = [asyncio.create_task(site.get()) for _ in range(5)]
    await arrived.wait()
    await _until_waiting(requests)
    go_on.set()
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert sum(isinstance(answer, LookupError) for answer in answers) == 1
    assert sum(isinstance(answer, httpx.Response) and answer.text == "x" for answer in answers) == 4
    assert site.runs == 2


async def test_a_cancelled_leader_does_not_leave_its_followers_waiting() -> None:
    arrived, forever = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        reads()
        if site.runs == 1:
            arrived.set()
            await forever.wait()
        return PlainTextResponse("x")

    site = Site(handler)
    leader = asyncio.create_task(site.get())
    await arrived.wait()
    follower = asyncio.create_task(site.get())
    await _until_waiting([follower])
    leader.cancel()
    assert (await follower).text == "x"


async def test_a_cancelled_follower_does_not_disturb_the_leader() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        reads()
        arrived.set()
        await go_on.wait()
        return PlainTextResponse("x")

    site = Site(handler)
    leader, follower = asyncio.create_task(site.get()), asyncio.create_task(site.get())
    await arrived.wait()
    await _until_waiting([follower])
    follower.cancel()
    go_on.set()
    assert "stored" in status_of(await leader)


async def test_a_client_that_leaves_in_mid_stream_does_not_leave_an_entry_or_a_flight() -> None:
    started = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            reads()
            yield b"a"
            started.set()
            await asyncio.Event().wait()

        return StreamingResponse(pieces())

    site = Site(handler)
    await _raw_get(site, disconnect=started)
    assert len(site.engine.read_path.flights) == 0
    assert len(site.engine.store) == 0


# Lifespan, WebSocket, sketch


async def test_the_engine_starts_before_the_app_and_stops_after_it() -> None:
    engine = HandEngine()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            engine.life.append(f"app {message['type'].removeprefix('lifespan.')}")
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await QuaestorMiddleware(app, quaestor=engine)({"type": "lifespan"}, receive, send)
    assert engine.life == ["start", "app startup", "app shutdown", "stop"]
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_without_a_lifespan_the_engine_starts_once_at_the_first_request() -> None:
    site = Site()
    await asyncio.gather(*(site.get(f"/{n}") for n in range(5)))
    assert site.engine.life == ["start"]


async def test_websockets_are_passed_on_untouched() -> None:
    engine = HandEngine()
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    async def receive() -> Any: ...

    async def send(message: Any) -> None: ...

    scope = {"type": "websocket"}
    await QuaestorMiddleware(app, quaestor=engine)(scope, receive, send)
    assert seen == [(scope, receive, send)]


async def test_the_sketch_is_made_once_a_second_however_many_ask() -> None:
    site = Site()
    answers = await asyncio.gather(*(site.get("/quaestor/sketch") for _ in range(10)))
    assert {answer.content for answer in answers} == {b"sketch 1"}
    assert answers[0].headers["content-type"] == "application/octet-stream"
    assert answers[0].headers["cache-control"] == "public, max-age=1"
    assert int(answers[0].headers["quaestor-sketch-generated-ms"]) == site.engine.clock.now_ms
    site.engine.clock.now_ms += 1000
    assert (await site.get("/quaestor/sketch")).content == b"sketch 2"
    assert (await site.client.post("/quaestor/sketch")).status_code == 405
    assert site.runs == 0


async def test_a_sketch_that_is_down_gives_503_and_is_asked_once_a_second() -> None:
    site = Site()
    site.engine.sketch.down = True
    for _ in range(3):
        answer = await site.get("/quaestor/sketch")
        assert (answer.status_code, answer.headers["cache-control"]) == (503, "no-store")
    assert site.engine.sketch.snapshots == 1
    assert site.engine.count("failures", part="sketch") == 1


async def test_metrics_are_not_shown_to_strangers() -> None:
    site = Site()
    assert (await site.get("/quaestor/metrics")).headers["content-type"] == "application/json"
    shown = QuaestorMiddleware(site.app, quaestor=HandEngine(), metrics_path="/m")
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=shown),
        base_url="http://x.test",
    ) as client:
        assert "quaestor_requests_total" in (await client.get("/m")).text


# URLs handed out to CDNs


async def test_every_spelling_handed_to_a_cdn_is_known_to_the_index_first() -> None:
    site = Site(cdn=[TaggingCdn()])
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
    site = Site(cdn=[TaggingCdn()])
    await site.get("/%69tems?q=abcdefghijklmnopqrst")
    for n in range(20):
        letters = list("abcdefghijklmnopqrst")
        letters[n] = f"%{ord(letters[n]):02x}"
        answer = await site.get(f"/items?q={''.join(letters)}")
    assert site.runs == 1
    assert answer.headers["cache-control"] == "no-store"
    assert "cdn-cache-control" not in answer.headers


async def _until_waiting(tasks: list[asyncio.Task[Any]]) -> None:
    """Give every task its turns until nothing moves any more: whoever can wait is waiting then."""
    for _ in range(50):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


async def _raw_get(site: Site, *, until_body: bool = False, disconnect: asyncio.Event | None = None) -> list[Any]:
    """One GET at ASGI level; ends when the first piece of a body arrives, or when the app has ended."""
    sent: list[Any] = []
    first_body = asyncio.Event()
    requested = False

    async def receive() -> Any:
        nonlocal requested
        if not requested:
            requested = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await (disconnect or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            first_body.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "GET", "scheme": "http",
        "path": "/s", "raw_path": b"/s", "query_string": b"", "headers": [(b"host", b"shop.test")], "root_path": "",
    }  # fmt: skip
    task = asyncio.create_task(site.app(scope, receive, send))
    if until_body:
        async with asyncio.timeout(20):
            await first_body.wait()
        task.cancel()
        await asyncio.wait((task,))
    else:
        async with asyncio.timeout(20):
            await task
    return sent
