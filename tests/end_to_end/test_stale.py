"""Stale answers: during a refresh, and instead of an error (RFC 5861). Never an answer that a write has invalidated."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from quaestor.caching import cached
from quaestor.middleware import QuaestorMiddleware
from tests.end_to_end.site import Site, raw_get, status_of
from tests.hand_driven import HandEngine, TaggingCdn, reads
from tests.support import eventually

pytestmark = pytest.mark.anyio


class Page(Site):
    """One page that reads, and says how it may be used. error: raised, or answered, instead."""

    def __init__(self, said: str = "max-age=10, stale-while-revalidate=20, stale-if-error=40", **settings: Any) -> None:
        self.error: Exception | int | None = None
        self.go = asyncio.Event()
        self.go.set()
        self.explicit = settings.get("explicit", False)

        async def handler(request: Request) -> Response:
            if not self.explicit:
                reads()
            await self.go.wait()
            if isinstance(self.error, Exception):
                raise self.error
            return JSONResponse({"run": self.runs}, self.error or 200, headers={"cache-control": said} if said else {})

        super().__init__(handler, **settings)
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        self.forgiving = httpx.AsyncClient(transport=transport, base_url="http://shop.test")

    def pass_ms(self, ms: int) -> None:
        self.engine.clock.now_ms += ms

    async def run_of(self, **headers: str) -> int:
        return int((await self.get(**headers)).json()["run"])


@pytest.mark.parametrize("explicit", [False, True])
async def test_a_stale_answer_is_served_while_one_request_refreshes_it(explicit: bool) -> None:
    page = Page(explicit=explicit)
    assert await page.run_of() == 1
    page.pass_ms(12_500)
    page.go.clear()
    stale = [await page.get() for _ in range(5)]
    assert [answer.json()["run"] for answer in stale] == [1] * 5
    assert status_of(stale[0]) == "Quaestor; hit; ttl=-3"
    assert stale[0].headers["age"] == "12"
    await eventually(lambda: page.runs == 2)
    page.go.set()

    async def refreshed() -> bool:
        return await page.run_of() == 2

    await eventually(refreshed)
    assert page.runs == 2
    assert "hit; ttl=" in status_of(await page.get())
    assert page.engine.count("stale_served", why="revalidating") >= 5


async def test_after_its_window_it_is_not_served_stale() -> None:
    page = Page()
    await page.run_of()
    page.pass_ms(30_000)
    assert await page.run_of() == 2
    assert page.engine.count("stale_served", why="revalidating") == 0


@pytest.mark.parametrize("late_ms", [0, 12_000])
async def test_an_invalidated_answer_is_never_served_stale(late_ms: int) -> None:
    page = Page()
    await page.run_of()
    page.engine.registry.kill()
    page.pass_ms(late_ms)
    assert await page.run_of() == 2
    page.engine.registry.kill()
    page.pass_ms(late_ms)
    page.error = 503
    assert (await page.get()).status_code == 503
    page.error = RuntimeError("broken")
    with pytest.raises(RuntimeError):
        await page.get()


async def test_while_the_grid_cannot_vouch_nothing_is_served_stale() -> None:
    page = Page()
    await page.run_of()
    page.pass_ms(12_000)
    page.engine.registry.up = False
    assert await page.run_of() == 2


async def test_its_registrations_are_guarded_for_as_long_as_it_may_be_served() -> None:
    page = Page("max-age=10, stale-while-revalidate=20, stale-if-error=400", ttl_max_ms=3_600_000)
    await page.run_of()
    [until_ms] = page.engine.registry.leases.values()
    assert until_ms >= page.engine.clock() + 410_000


@pytest.mark.parametrize("error", [500, 502, 503, 504, RuntimeError("broken")])
async def test_instead_of_an_error_the_last_answer_is_sent(error: Exception | int) -> None:
    page = Page("max-age=10, stale-if-error=40")
    await page.run_of()
    page.error = error
    page.pass_ms(13_000)
    answer = await page.forgiving.get("/items")
    assert (answer.status_code, answer.json()["run"]) == (200, 1)
    status = 500 if isinstance(error, Exception) else error
    assert status_of(answer) == f"Quaestor; fwd=stale; fwd-status={status}"
    assert answer.headers["age"] == "13"
    assert page.engine.count("stale_served", why="error") == 1
    page.pass_ms(40_000)
    assert (await page.forgiving.get("/items")).status_code == status


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_an_exception_reaches_the_log_and_not_the_client(in_pieces: bool) -> None:
    broken = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reads()
        headers = [(b"cache-control", b"max-age=10, stale-if-error=40")]
        if not broken or in_pieces:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"whole", "more_body": broken})
        if broken:
            raise RuntimeError("broken")

    engine = HandEngine()
    transport = httpx.ASGITransport(app=QuaestorMiddleware(app, quaestor=engine))
    async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
        await client.get("/")
        engine.clock.now_ms += 12_000
        broken = True
        with pytest.raises(RuntimeError, match="broken"):
            await client.get("/")
        transport.raise_app_exceptions = False
        answer = await client.get("/")
    assert (answer.status_code, answer.text) == (200, "whole")
    assert status_of(answer) == "Quaestor; fwd=stale; detail=error"


async def test_an_answer_that_is_no_error_takes_its_place() -> None:
    page = Page("max-age=10, stale-if-error=40")
    await page.run_of()
    page.error = 404
    page.pass_ms(13_000)
    assert (await page.get()).status_code == 404


async def test_followers_of_a_failed_run_get_the_last_answer_too() -> None:
    page = Page("max-age=10, stale-if-error=40")
    await page.run_of()
    page.error = 503
    page.pass_ms(13_000)
    answers = await asyncio.gather(*(page.get() for _ in range(4)))
    assert [answer.json()["run"] for answer in answers] == [1] * 4


async def test_a_refresh_that_fails_is_not_repeated_by_every_request() -> None:
    page = Page()
    await page.run_of()
    page.pass_ms(11_000)
    page.error = RuntimeError("broken")
    assert await page.run_of() == 1
    await eventually(lambda: page.engine.count("failures", part="handler") == 1)
    for _ in range(5):
        assert await page.run_of() == 1
    assert page.runs == 2


async def test_a_client_that_leaves_does_not_end_the_refresh_and_the_shutdown_does() -> None:
    page = Page()
    await raw_get(page)
    page.pass_ms(11_000)
    page.go.clear()
    await raw_get(page, until_body=True)
    await eventually(lambda: page.runs == 2)
    page.go.set()
    await eventually(lambda: page.engine.count("requests", outcome="miss") == 2)
    sent = await raw_get(page)
    assert b"hit" in dict(sent[0]["headers"])[b"cache-status"]

    page.pass_ms(11_000)
    page.go.clear()
    await raw_get(page)
    await eventually(lambda: page.runs == 3)
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_: Any) -> None: ...

    await page.app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    left = [task for task in asyncio.all_tasks() if task.get_name() == "quaestor-refresh"]
    assert left == []


async def test_routes_may_say_it_as_well() -> None:
    runs = 0

    @cached(ttl=10, stale_while_revalidate=20)
    async def handler(_: Request) -> Response:
        nonlocal runs
        runs += 1
        reads()
        return PlainTextResponse(str(runs))

    engine = HandEngine()
    app = QuaestorMiddleware(Starlette(routes=[Route("/items", handler)]), quaestor=engine)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop.test") as client:
        await client.get("/items")
        engine.clock.now_ms += 12_000
        stale = await client.get("/items")
        assert (stale.text, status_of(stale)) == ("1", "Quaestor; hit; ttl=-2")
        await eventually(lambda: runs == 2)


async def test_a_cdn_that_is_purged_is_given_no_stale_answer_to_keep() -> None:
    page = Page(cdn=[TaggingCdn()])
    await page.run_of()
    page.pass_ms(12_000)
    stale = await page.get()
    assert stale.json()["run"] == 1
    assert stale.headers["cache-control"] == "no-store"
    assert "cdn-cache-control" not in stale.headers
