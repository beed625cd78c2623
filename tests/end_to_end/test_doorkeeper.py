"""Answers of routes without repeated requests are stored at the second request; all else about a request stays as it
was.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from quaestor.admin.status_text import text
from quaestor.caching import cached
from quaestor.capture.context import heard
from quaestor.read_path.doorkeeper import LEAST_ENTRIES, PATIENCE_MS
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from tests.end_to_end.site import Handler, Site, raw_get, status_of, until_waiting
from tests.hand_driven import HandRegistry, TaggingCdn, reads

pytestmark = pytest.mark.anyio

REFUSED = "Quaestor; fwd=uri-miss; detail=doorkeeper"


async def crawled(handler: Handler | None = None, *, used: int = 0, **settings: object) -> Site:
    """Return a site after a crawler has fetched many pages, `used` of them twice."""
    site = Site(handler, **settings)
    for number in range(LEAST_ENTRIES + 1):
        await site.get(f"/crawled/{number}")
        if number < used:
            await site.get(f"/crawled/{number}")
    site.engine.read_path.lookup.take_served()
    site.engine.clock.now_ms += PATIENCE_MS
    await site.get("/crawled/last")
    site.runs = 0
    return site


async def test_a_client_that_asks_twice_gets_the_second_answer_from_cache() -> None:
    """Two equal requests in a row, a newcomer's first experiment, are a stored miss and a hit."""
    site = Site()
    assert status_of(await site.get()) == "Quaestor; fwd=uri-miss; stored"
    assert "hit" in status_of(await site.get())


async def test_a_first_request_costs_no_registration_and_no_entry_and_the_second_one_is_stored() -> None:
    """The doorkeeper: nothing is registered, indexed or stored for a request that does not come twice."""
    site = await crawled()
    registered, entries = len(site.engine.registry.registered), len(site.engine.store)  # type: ignore[arg-type]
    first = await site.get("/once")
    assert (first.json()["version"], status_of(first)) == (1, REFUSED)
    assert first.headers["cache-control"] == "private, no-cache"
    assert len(site.engine.registry.registered) == registered
    assert len(site.engine.store) == entries  # type: ignore[arg-type]
    assert site.engine.count("uncacheable", reason="doorkeeper") == 1
    assert status_of(await site.get("/once")) == "Quaestor; fwd=uri-miss; stored"
    assert "hit" in status_of(await site.get("/once"))
    assert site.runs == 2


async def test_routes_whose_entries_are_used_are_stored_at_once() -> None:
    """Learned per route, from what it was asked for."""
    site = await crawled(used=LEAST_ENTRIES * 3 // 4)
    assert status_of(await site.get("/once")).endswith("stored")


async def test_routes_whose_answers_a_cdn_keeps_are_stored_at_once() -> None:
    """The CDN answers repeated requests, which never arrive here: their absence is no sign of entries without use."""
    site = await crawled(cdn=[TaggingCdn()])
    first = await site.get("/once")
    assert status_of(first).endswith("stored")
    assert first.headers["cdn-cache-control"] != "max-age=0"
    assert site.engine.count("uncacheable", reason="doorkeeper") == 0


async def test_a_cdn_that_may_not_keep_a_routes_answers_hides_no_use() -> None:
    """Every request for them comes here, so what is learned of them holds."""
    site = await crawled(cdn=[TaggingCdn()], routes={"/crawled/{number}": cached(cdn_ttl=0)})
    assert status_of(await site.get("/crawled/once")) == REFUSED


async def test_it_can_be_turned_off() -> None:
    site = await crawled(doorkeeper_share=0.0)
    assert status_of(await site.get("/once")).endswith("stored")


async def test_of_concurrent_first_requests_one_is_refused_and_one_is_stored_for_all_others() -> None:
    """The first runs its handler for itself alone. The second one is stored, and the others wait for it."""
    go = asyncio.Event()
    go.set()

    async def handler(request: Request) -> Response:
        reads()
        await go.wait()
        return PlainTextResponse("x")

    site = await crawled(handler)
    go.clear()
    tasks = [asyncio.create_task(site.get("/many")) for _ in range(5)]
    await until_waiting(tasks)
    go.set()
    answers = await asyncio.gather(*tasks)
    assert site.runs == 2
    assert Counter(map(status_of, answers)) == {
        REFUSED: 1, "Quaestor; fwd=uri-miss; stored": 1, "Quaestor; fwd=uri-miss; collapsed": 3
    }  # fmt: skip
    assert {answer.text for answer in answers} == {"x"}


async def test_an_answer_that_dies_is_stored_again_at_once() -> None:
    """A request for an answer that was stored before is no first request."""
    site = await crawled()
    await site.get("/known")
    await site.get("/known")
    site.engine.registry.dead.update(site.engine.registry.leases)
    assert status_of(await site.get("/known")).endswith("stored")


async def test_entries_of_second_requests_do_not_open_the_door() -> None:
    """Pages that are requested in pairs are entries with a use each. Beside them new pages are still refused."""
    site = await crawled()
    for number in range(LEAST_ENTRIES):
        for _ in range(3):
            await site.get(f"/paired/{number}")
    site.engine.read_path.lookup.take_served()
    (route,) = site.engine.read_path.admission.doorkeeper.kept
    assert route.share < 0.1
    assert status_of(await site.get("/once")) == REFUSED


@pytest.mark.parametrize("explicit", [False, True])
async def test_no_cache_outside_may_keep_a_refused_answer(explicit: bool) -> None:
    """Caches outside would not learn of changes, so they may not keep the answer, with any headers of the handler;
    other fields stay.
    """

    async def handler(request: Request) -> Response:
        reads()
        fields = {"Cache-Control": "public, max-age=600, no-transform", "Expires": "0", "ETag": '"mine"', "X-Own": "1"}
        return PlainTextResponse("x", headers=fields)

    site = await crawled(handler, explicit=explicit)
    answer = await site.get("/once")
    assert status_of(answer) == REFUSED
    assert answer.headers.get_list("cache-control") == ["private, no-cache, no-transform"]
    assert "expires" not in answer.headers
    assert (answer.headers["etag"], answer.headers["x-own"]) == ('"mine"', "1")


async def test_answers_that_cannot_be_stored_say_why() -> None:
    """A cookie for one client is reported as the reason, not the doorkeeper."""
    cookies = False

    async def handler(request: Request) -> Response:
        reads()
        response = PlainTextResponse("x")
        if cookies:
            response.set_cookie("session", "1")
        return response

    site = await crawled(handler)
    cookies = True
    assert "detail=set-cookie" in status_of(await site.get("/cookie"))


async def test_status_says_which_routes_are_stored_at_the_second_request() -> None:
    site = await crawled(used=2)
    [kept] = site.engine.read_path.admission.doorkeeper.kept
    assert kept.share == pytest.approx(2 / LEAST_ENTRIES, rel=0.1)
    said = {
        "serving": True, "lagging": [], "mode": "embedded", "deployment": "default", "grid": None, "registered_urls": 0,
        "counts": {}, "doorkept": [{"route": "GET /x", "used": 0.012, "break_even": 0.3}],
    }  # fmt: skip
    assert "stored at the second request  GET /x: 1.2% of its entries were used" in text(said)


async def test_a_refused_answer_is_sent_as_it_comes() -> None:
    """Nothing of it is kept, so no piece of it is held back."""
    go = asyncio.Event()

    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[str]:
            yield "first"
            await go.wait()
            yield "last"

        reads()
        return StreamingResponse(pieces()) if request.url.path == "/s" else PlainTextResponse("x")

    site = await crawled(handler)
    sent = await raw_get(site, until_body=True)
    assert [message.get("body") for message in sent] == [None, b"first"]
    assert dict(sent[0]["headers"])[b"cache-status"].decode() == REFUSED


async def test_a_condition_is_answered_on_such_a_route_too() -> None:
    """The cache answers conditions itself, so such a request goes the long way."""

    async def handler(request: Request) -> Response:
        reads()
        assert request.headers.get("if-none-match") is None
        return PlainTextResponse("x", headers={"ETag": '"mine"'})

    site = await crawled(handler)
    answer = await site.get("/once", if_none_match='"mine"')
    assert (answer.status_code, status_of(answer)) == (304, REFUSED)


async def test_parameters_for_advertisers_stay_hidden_from_the_handler() -> None:
    """A refused request shows its handler what a stored one shows."""
    site = await crawled()
    answer = await site.get("/once?utm_source=mail&a=1")
    assert (answer.json()["query"], status_of(answer)) == ("a=1", REFUSED)


@pytest.mark.parametrize("after_its_answer", [False, True])
async def test_a_handler_that_writes_is_found_out_by_a_refused_request(after_its_answer: bool) -> None:
    """Also if a task that it leaves behind writes."""
    written = asyncio.Event()
    tasks = []

    async def write() -> None:
        if after_its_answer:
            await written.wait()
        _, writes = heard()
        assert writes is not None
        writes.attempt()

    async def handler(request: Request) -> Response:
        reads()
        if request.url.path == "/writes":
            tasks.append(asyncio.create_task(write()))
            if not after_its_answer:
                await tasks[0]
        return PlainTextResponse("x")

    site = await crawled(handler)
    assert status_of(await site.get("/writes")) == REFUSED
    written.set()
    await asyncio.gather(*tasks)
    assert "detail=wrote" in status_of(await site.get("/once"))


async def test_an_error_of_the_handler_is_the_applications() -> None:
    async def handler(request: Request) -> Response:
        reads()
        if request.url.path == "/broken":
            raise LookupError("of the handler")
        return PlainTextResponse("x")

    site = await crawled(handler)
    with pytest.raises(LookupError):
        await site.get("/broken")
    assert status_of(await site.get("/once")) == REFUSED


async def test_an_entry_of_another_process_is_found_on_such_a_route(redis_url: str, prefix: str) -> None:
    """Beside a shared store the doorkeeper is asked after the look-up."""
    async with Redis.from_url(redis_url) as redis:
        shared, registry = RedisStore(redis, deployment=prefix), HandRegistry()

        def memory() -> TwoLevelStore:
            return TwoLevelStore(MemoryStore(budget_bytes=10**7), shared)

        site = await crawled(store=memory(), registry=registry, leases=shared)
        other = Site(store=memory(), registry=registry, leases=shared)
        assert status_of(await other.get("/known")).endswith("stored")
        assert "hit" in status_of(await site.get("/known"))
        assert status_of(await site.get("/once")) == REFUSED
        assert status_of(await site.get("/once")).endswith("stored")
        await site.engine.read_path.coalescing.settle()
        await other.engine.read_path.coalescing.settle()
