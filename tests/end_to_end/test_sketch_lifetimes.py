"""Lifetimes in header fields for clients that consult the Cache Sketch (docs/sketch_clients.md)."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quaestor import cached, per_user, private
from tests.end_to_end.site import Site, status_of
from tests.hand_driven import HandEngine, TaggingCdn, reads

pytestmark = pytest.mark.anyio

FIELD = re.compile(r"([0-9]{1,8});at=([0-9]{1,15})(;private)?")


def lifetime_of(answer: httpx.Response) -> tuple[int, int, bool] | None:
    """Return a lifetime in s, its start in ms, and whether it is for one user only; None without the field."""
    if "quaestor-ttl" not in answer.headers:
        return None
    match = FIELD.fullmatch(answer.headers["quaestor-ttl"])
    assert match is not None, answer.headers["quaestor-ttl"]
    return int(match[1]), int(match[2]), match[3] is not None


async def test_all_clients_revalidate_and_clients_with_the_sketch_get_a_lifetime() -> None:
    """Misses, hits and 304s carry `max-age=0` for all clients.

    The lifetime starts no later than the answer, and never ends later than the end that the sketch received.
    """
    site = Site()
    etag = (await site.get()).headers["etag"]
    for step_ms in (0, 0, 400, 300, 400, 58_000, 500):
        site.engine.clock.now_ms += step_ms
        for answer in (await site.get(), await site.get(if_none_match=etag)):
            assert answer.headers["cache-control"] == "public, max-age=0, must-revalidate"
            lifetime = lifetime_of(answer)
            assert lifetime is not None
            ttl_s, at_ms, personal = lifetime
            assert 0 <= site.engine.clock.now_ms - at_ms < 100
            assert at_ms + ttl_s * 1_000 <= site.engine.sketch.reads["/items"] - 2_000
            assert not personal
        assert answer.status_code == 304
    assert ttl_s == 0
    assert site.runs == 1


async def test_copies_are_given_another_lifetime_when_the_last_one_is_over() -> None:
    """An entry with constant writes gets short lifetimes, and the sketch and the index receive each of them."""
    site = Site()
    site.engine.estimator.ttl_ms = 5_000
    for at_s in range(55):
        ttl_s, at_ms, _ = lifetime_of(await site.get()) or (0, 0, False)
        assert ttl_s == 5 - at_s % 5
        assert at_ms + ttl_s * 1_000 + 2_000 == site.engine.sketch.reads["/items"]
        site.engine.clock.now_ms += 1_000
    assert site.runs == 1


async def test_no_time_goes_by_between_the_lifetimes_of_copies() -> None:
    """A lifetime is sent in whole seconds, and the next one begins when these are over.

    Otherwise each request between the two would arrive here, and its answer could not be kept.
    """
    site = Site(cdn=[TaggingCdn()])
    site.engine.estimator.ttl_ms = 2_900
    for _ in range(50):
        answer = await site.get()
        lives_s = int(answer.headers["cdn-cache-control"].removeprefix("max-age="))
        assert lives_s - int(answer.headers["age"]) > 0
        ttl_s, at_ms, _ = lifetime_of(answer) or (0, 0, False)
        assert site.engine.clock.now_ms < at_ms + ttl_s * 1_000 + 1_000
        assert at_ms + ttl_s * 1_000 + 2_000 <= site.engine.sketch.reads["/items"]
        site.engine.clock.now_ms += 300
    assert site.runs == 1


async def test_while_the_sketch_is_away_answers_are_cached_without_a_lifetime() -> None:
    """An unavailable sketch is not asked again by every hit."""
    site = Site()
    site.engine.estimator.ttl_ms = 5_000
    assert lifetime_of(await site.get()) is not None
    site.engine.clock.now_ms += 5_000
    site.engine.sketch.down = True
    for _ in range(5):
        answer = await site.get()
        assert "hit" in status_of(answer)
        assert answer.headers["cache-control"] == "public, max-age=0, must-revalidate"
        assert lifetime_of(answer) is None
    assert site.engine.count("failures", part="sketch") == 1
    site.engine.sketch.down = False
    site.engine.clock.now_ms += 1_000
    assert lifetime_of(await site.get()) is not None
    assert site.runs == 1


async def test_an_entry_unknown_to_the_sketch_is_sent_without_a_lifetime() -> None:
    """Another process of the deployment, an older release or one with other settings, has stored the entry."""
    silent = Site(client_ttl="none")
    assert lifetime_of(await silent.get()) is None
    assert silent.engine.sketch.reads == {}
    entry = silent.engine.store.resident("http://shop.test/items")
    assert entry is not None
    site = Site(registry=silent.engine.registry, clock=silent.engine.clock)
    await site.engine.store.put(entry.response, ttl_ms=60_000)
    for _ in range(2):
        answer = await site.get()
        assert "hit" in status_of(answer)
        assert lifetime_of(answer) is None
    assert site.runs == 0


async def test_a_cdn_keeps_the_field_as_it_is() -> None:
    """The lifetime counts from the origin's clock, so a client's copy does not live longer after any time in a CDN."""
    site = Site(cdn=[TaggingCdn()])
    answer = await site.get()
    assert answer.headers["cdn-cache-control"] == "max-age=60"
    assert lifetime_of(answer) == (60, site.engine.clock.now_ms, False)


def by(scope: Any) -> str | None:
    return next((value.decode() for name, value in scope["headers"] if name == b"authorization"), None)


@pytest.mark.parametrize(
    ("declared", "expected", "reported"),
    [
        (cached(browser_ttl=0), None, False),
        (cached(browser_ttl=7), (7, False), True),
        (cached(browser_ttl=600), (60, False), True),
        (cached(cookies=["lang"]), None, True),
        (cached(headers=["accept-language"]), (60, False), True),
        (cached(scope=per_user(by=by)), None, False),
        (cached(scope=per_user(by=by, reads=["Authorization"])), (60, True), True),
        (cached(scope=per_user(by=by, reads=["authorization"]), browser_ttl=7), (7, True), True),
        (cached(scope=per_user(by=by, reads=["authorization"]), browser_ttl=0), None, False),
        (cached(scope=private()), None, False),
    ],
)
async def test_the_declaration_of_a_route_goes_first(
    declared: Any, expected: tuple[int, bool] | None, reported: bool
) -> None:
    """A page cannot see cookies, so what varies by them is not kept; what is for one user is marked, and kept only where the
    route says which fields decide."""
    site = Site(routes={"/items": declared})
    for _ in range(3):
        lifetime = lifetime_of(
            await site.get(authorization="Bearer a") if declared.given.get("by") else await site.get()
        )
        assert lifetime == (None if expected is None else (expected[0], site.engine.clock.now_ms, expected[1]))
    assert bool(site.engine.sketch.reads) is reported


async def test_the_handlers_own_lifetime_is_a_bound() -> None:
    async def handler(request: Request) -> Response:
        reads()
        said = request.query_params.get("said", "")
        return PlainTextResponse("x", headers={"cache-control": said} if said else {})

    site = Site(handler)
    for said, expected in (
        ("max-age=5", 5),
        ("max-age=0", None),
        ("s-maxage=9", 9),
        ("max-age=900", 60),
        ("no-store", None),
    ):
        for _ in range(2):
            lifetime = lifetime_of(await site.get(f"/items?said={said}"))
            assert (None if lifetime is None else lifetime[0]) == expected, said


async def test_a_lifetime_that_the_handler_forwards_is_not_sent() -> None:
    """The forwarded lifetime belongs to another server's sketch, which this server's clients do not read."""

    async def handler(request: Request) -> Response:
        if "stored" in request.url.path:
            reads()
        return PlainTextResponse("x", headers={"quaestor-ttl": "9999;at=1"}, status_code=200)

    for site in (Site(handler), Site(handler, client_ttl="none"), Site(handler, explicit=True)):
        for path in ("/stored", "/stored", "/passed", "/passed"):
            assert "9999" not in (await site.get(path)).headers.get("quaestor-ttl", "")
        assert "9999" not in (await site.get("/passed", authorization="Bearer x")).headers.get("quaestor-ttl", "")


async def test_a_request_by_another_name_than_the_sketch_s_gets_no_lifetime() -> None:
    """The client would look the copy up under a name that is never reported; the entry is the same, and a hit out of
    memory.
    """
    site = Site()
    assert lifetime_of(await site.get("/items?a=1")) is not None
    for _ in range(2):
        answer = await site.get("/items?a=1&utm_source=mail")
        assert "hit" in status_of(answer)
        assert lifetime_of(answer) is None
    assert lifetime_of(await site.get("/items?a=1")) is not None
    assert site.runs == 1


async def test_an_answer_with_a_part_has_no_lifetime() -> None:
    site = Site()
    await site.get()
    part = await site.get(range="bytes=0-3")
    assert (part.status_code, lifetime_of(part)) == (206, None)


@pytest.mark.parametrize("client_ttl", ["none", "estimated"])
async def test_it_can_be_turned_off(client_ttl: str) -> None:
    site = Site(client_ttl=client_ttl)
    for _ in range(2):
        assert lifetime_of(await site.get()) is None


def test_the_default_is_on() -> None:
    assert HandEngine().settings.lifetimes.client_ttl == "sketch"


async def test_answers_of_a_lagging_process_after_a_write_are_reported_as_outdated_too() -> None:
    """Another process has worked the write off, for the lifetimes that were known then; this one has not heard of it yet."""
    site = Site()
    site.engine.estimator.ttl_ms = 5_000
    await site.get()
    index, now_ms = site.engine.index, site.engine.clock.now_ms
    await index.settle(await index.claim(["test:1"], now_ms=now_ms))
    site.engine.clock.now_ms += 5_000
    assert lifetime_of(await site.get()) is not None
    now_ms = site.engine.clock.now_ms
    assert [dependent.resource for dependent in await index.reclaim(claimed_before_ms=now_ms, now_ms=now_ms)] == [
        "/items"
    ]
