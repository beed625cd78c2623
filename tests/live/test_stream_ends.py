"""Ends of streams: refused and expired credentials, limits, slow readers, a process that stops."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from quaestor.caching import cached, per_user, public
from quaestor.policy import Live
from tests.hand_driven import reads
from tests.live.live_site import LiveSite
from tests.live.streamed import following
from tests.support import eventually

pytestmark = pytest.mark.anyio


async def test_a_user_whose_token_is_refused_loses_the_stream_before_the_next_answer() -> None:
    """The route's `by` is asked again before each push."""
    valid = {"ann", "bob"}

    def by(scope: Any) -> str | None:
        token = dict(scope["headers"]).get(b"authorization", b"").decode()
        return token if token in valid else None

    site = LiveSite(declared=cached(live=True, scope=per_user(by=by)))
    async with (
        site.served() as client,
        following(client, "/me", authorization="ann") as ann,
        following(client, "/me", authorization="bob") as bob,
    ):
        assert [json.loads((await one.event()).data) for one in (ann, bob)] == [{"version": 1}] * 2
        valid.discard("ann")
        site.change(2)
        event = await ann.event()
        assert (event.name, json.loads(event.data)) == ("end", {"reason": "unauthorized"})
        assert json.loads((await bob.event()).data) == {"version": 2}


async def test_a_client_that_the_handler_refuses_later_loses_the_stream_and_others_keep_theirs() -> None:
    revoked: set[str] = set()

    async def page(request: Request) -> Response:
        reads()
        if request.headers["authorization"] in revoked:
            return PlainTextResponse("no", status_code=403)
        return JSONResponse({"version": site.version})

    site = LiveSite(page, declared=cached(live=True, scope=public()))
    async with (
        site.served() as client,
        following(client, "/all", authorization="ann") as ann,
        following(client, "/all", authorization="bob") as bob,
    ):
        assert [json.loads((await one.event()).data) for one in (ann, bob)] == [{"version": 1}] * 2
        revoked.add("ann")
        event = None
        for version in range(2, 5):  # followers take turns at reading
            site.change(version)
            assert json.loads((await bob.event()).data) == {"version": version}
            event = await ann.event()
            if event.name == "end":
                break
        assert event is not None
        assert json.loads(event.data) == {"reason": "unauthorized", "status": 403}


async def test_credentials_that_expire_end_the_stream() -> None:
    expires_s: list[float] = []

    def two_seconds(scope: Any) -> float:
        expires_s.append(time.time() + 2)
        return expires_s[-1]

    site = LiveSite(declared=cached(live=Live(valid_until=two_seconds)))
    async with site.served() as client, following(client, "/items") as stream:
        assert json.loads((await stream.event()).data) == {"version": 1}
        event = await stream.event()
        assert (event.name, json.loads(event.data)) == ("end", {"reason": "expired"})
        assert time.time() >= expires_s[0]


async def test_limits_of_a_client_and_of_the_process_refuse_with_a_time_to_come_again() -> None:
    for settings, status in (({"live_followers_of_client": 1}, 429), ({"live_followers": 1}, 503)):
        site = LiveSite(**settings)
        async with site.served() as client, following(client, "/items") as stream:
            await stream.event()
            async with following(client, "/items") as refused:
                assert refused.response.status_code == status
                assert int(refused.response.headers["retry-after"]) >= 1
        async with site.served() as client, following(client, "/items") as again:
            assert again.response.status_code == 200


async def test_a_stream_without_news_shows_signs_of_life() -> None:
    site = LiveSite(live_heartbeat_ms=10)
    async with site.served() as client, following(client, "/items") as stream:
        await stream.event()
        assert (await stream.any_event()).comment == ""


async def test_a_reader_that_stops_delays_no_other_and_gets_the_last_answer_only() -> None:
    """The reader skips answers while its socket is full, and receives the final state last."""
    filling = "x" * 2_000_000

    async def page(request: Request) -> Response:
        reads()
        return JSONResponse({"version": site.version, "filling": filling})

    site = LiveSite(page, max_body_bytes=4_000_000)
    async with site.served() as client, following(client, "/items") as slow, following(client, "/items") as quick:
        await quick.event()
        for version in range(2, 12):
            site.change(version)
            assert json.loads((await quick.event()).data)["version"] == version
        seen = []
        while not seen or seen[-1] != 11:
            seen.append(json.loads((await slow.event()).data)["version"])
        assert seen == sorted(set(seen))
        assert len(seen) < 11


async def test_a_reader_that_reads_nothing_for_too_long_loses_its_stream() -> None:
    filling = "x" * 4_000_000

    async def page(request: Request) -> Response:
        reads()
        return JSONResponse({"version": site.version, "filling": filling})

    site = LiveSite(page, max_body_bytes=8_000_000, live_send_timeout_ms=200)
    async with site.served() as client, following(client, "/items"):
        await site.until_runs(1)
        site.change(2)
        await eventually(lambda: site.engine.count("followers_ended", reason="slow") == 1)


async def test_answers_that_cannot_be_stored_are_polled_where_the_route_says_so() -> None:
    """Each client has a loop of its own, because nothing says that the answers are for everybody."""

    async def page(request: Request) -> Response:
        return JSONResponse({"version": site.version, "user": request.headers["x-name"]})

    site = LiveSite(page, declared=cached(live=Live(poll=0.1)))
    async with (
        site.served() as client,
        following(client, "/items", x_name="ann") as ann,
        following(client, "/items", x_name="bob") as bob,
    ):
        for version in (1, 2):
            site.version = version
            assert json.loads((await ann.event()).data) == {"version": version, "user": "ann"}
            assert json.loads((await bob.event()).data) == {"version": version, "user": "bob"}


async def test_a_handler_that_raises_ends_no_stream() -> None:
    async def page(request: Request) -> Response:
        reads()
        if site.version == 2:
            raise ZeroDivisionError
        return JSONResponse({"version": site.version})

    site = LiveSite(page)
    async with site.served() as client, following(client, "/items") as stream:
        assert json.loads((await stream.event()).data) == {"version": 1}
        site.change(2)
        await eventually(lambda: site.runs >= 3)
        site.version = 3
        assert json.loads((await stream.event()).data) == {"version": 3}


async def test_a_stop_ends_streams_with_another_time_to_come_again() -> None:
    site = LiveSite()
    async with site.served() as client, following(client, "/items") as stream, following(client, "/items") as other:
        for one in (stream, other):
            await one.event()
        await site.live().stop()
        waits = [await one.any_event() for one in (stream, other)]
        assert all(500 <= wait.retry_ms <= 5000 for wait in waits)
        assert [await one.any_event() for one in (stream, other)] == [None, None]


async def test_clients_that_leave_at_any_moment_leave_nothing_behind() -> None:
    """At once, while the handler runs, after the first answer: `served` sees that nothing remains."""
    go_on = asyncio.Event()

    async def page(request: Request) -> Response:
        reads()
        await go_on.wait()
        return JSONResponse({"version": site.version})

    site = LiveSite(page)
    async with site.served() as client:

        async def leave(after_s: float) -> None:
            async with asyncio.timeout(after_s), following(client, "/items") as stream:
                await stream.event()

        results = await asyncio.gather(*(leave(0.05) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(one, TimeoutError) for one in results)
        go_on.set()
        async with following(client, "/items") as stream:
            assert json.loads((await stream.event()).data) == {"version": 1}
