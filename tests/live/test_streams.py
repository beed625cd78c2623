"""A live page over a real socket: what a stream sends, when it sends nothing, and how it ends."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from quaestor.caching import cached, header, per_user
from tests.hand_driven import reads
from tests.live.live_site import LiveSite
from tests.live.streamed import following

pytestmark = pytest.mark.anyio


async def test_a_stream_begins_with_the_answer_of_a_plain_get_and_its_etag() -> None:
    site = LiveSite()
    async with site.served() as client:
        plain = await client.get("/items")
        async with following(client, "/items") as stream:
            event = await stream.event()
            assert event is not None
            assert (event.name, event.data, event.id) == ("message", plain.text, plain.headers["etag"])
            assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert stream.response.headers["cache-control"] == "no-store, no-transform"
            assert stream.response.headers["x-accel-buffering"] == "no"
    assert site.runs == 1


async def test_a_change_is_pushed_after_one_run_of_the_handler_for_all_followers() -> None:
    site = LiveSite()
    async with site.served() as client, following(client, "/items") as one, following(client, "/items") as other:
        assert [json.loads((await stream.event()).data) for stream in (one, other)] == [{"version": 1}] * 2
        site.change(2)
        assert [json.loads((await stream.event()).data) for stream in (one, other)] == [{"version": 2}] * 2
    assert site.runs == 2


async def test_an_invalidation_that_changes_nothing_is_not_sent() -> None:
    site = LiveSite()
    async with site.served() as client, following(client, "/items") as stream:
        await stream.event()
        site.die()
        await site.until_runs(2)
        site.change(3)
        event = await stream.event()
        assert json.loads(event.data) == {"version": 3}


async def test_last_event_id_repeats_nothing() -> None:
    site = LiveSite()
    async with site.served() as client:
        tag = (await client.get("/items")).headers["etag"]
        async with following(client, "/items", last_event_id=tag) as stream:
            retry, comment = await stream.any_event(), await stream.any_event()
            assert (retry.retry_ms > 0, comment.comment) == (True, "unchanged")
            site.change(2)
            assert json.loads((await stream.event()).data) == {"version": 2}
        async with following(client, "/items", last_event_id=tag) as stream:
            assert json.loads((await stream.event()).data) == {"version": 2}


async def test_an_entry_that_dies_between_the_read_and_the_watch_is_read_again() -> None:
    """No change is lost between the read and the watch, in either order."""
    site = LiveSite()
    watches = site.engine.read_path.lookup.watches
    watch = watches.watch

    def too_late(names, wake) -> None:
        watches.watch = watch
        site.change(2)  # nobody watches yet
        watch(names, wake)

    watches.watch = too_late
    async with site.served() as client, following(client, "/items") as stream:
        seen = [json.loads((await stream.event()).data)["version"]]
        while seen[-1] != 2:
            seen.append(json.loads((await stream.event()).data)["version"])
    assert site.runs == 2


async def test_answers_that_cannot_be_stored_end_the_stream_with_the_reason() -> None:
    async def page(request: Request) -> Response:
        reads()
        return JSONResponse({"a": 1}, headers={"cache-control": "private"})

    site = LiveSite(page)
    async with site.served() as client, following(client, "/items") as stream:
        event = await stream.event()
        assert (event.name, json.loads(event.data)) == ("end", {"reason": "private"})
        assert await stream.any_event() is None


async def test_a_client_that_the_handler_refuses_gets_its_answer() -> None:
    async def page(request: Request) -> Response:
        reads()
        return PlainTextResponse("who are you?", status_code=401, headers={"www-authenticate": "Bearer"})

    site = LiveSite(page)
    async with site.served() as client, following(client, "/items") as stream:
        assert stream.response.status_code == 401
        assert stream.response.headers["www-authenticate"] == "Bearer"
        assert await stream.response.aread() == b"who are you?"


async def test_answers_for_one_user_reach_that_user_only() -> None:
    async def page(request: Request) -> Response:
        reads()
        return JSONResponse({"user": request.headers["authorization"], "version": site.version})

    site = LiveSite(page, declared=cached(live=True, scope=per_user(by=header("authorization"))))
    async with (
        site.served() as client,
        following(client, "/me", authorization="ann") as ann,
        following(client, "/me", authorization="bob") as bob,
    ):
        for version in (1, 2, 3):
            if version > 1:
                site.change(version)
            assert json.loads((await ann.event()).data) == {"user": "ann", "version": version}
            assert json.loads((await bob.event()).data) == {"user": "bob", "version": version}


async def test_a_route_that_is_not_live_refuses_a_client_that_accepts_nothing_but_a_stream() -> None:
    """In a miss and in a hit; a client that accepts anything else as well is answered."""
    site = LiveSite()
    async with site.served() as client:
        await client.get("/items")
        for _ in range(2):
            refused = await client.get("/plain/items", headers={"accept": "text/event-stream"})
            assert refused.status_code == 406
            assert "live=True" in refused.text
            answer = await client.get("/plain/items", headers={"accept": "text/event-stream, */*"})
            assert answer.json() == {"version": 1}


async def test_a_route_that_is_not_live_may_stream_events_of_its_own() -> None:
    async def page(request: Request) -> Response:
        return Response("data: mine\n\n", media_type="text/event-stream")

    site = LiveSite(page)
    async with site.served() as client:
        await client.get("/items")
        answer = await client.get("/plain/items", headers={"accept": "text/event-stream"})
        assert answer.text == "data: mine\n\n"


async def test_a_head_for_a_stream_is_refused() -> None:
    site = LiveSite()
    async with site.served() as client:
        assert (await client.head("/items", headers={"accept": "text/event-stream"})).status_code == 406
        assert (await client.head("/items")).status_code == 200


@pytest.mark.parametrize("everywhere", [False, True])
async def test_plain_answers_of_live_routes_vary_by_accept(everywhere: bool) -> None:
    """In a miss, a hit, a HEAD and a 304, so that no cache answers a stream with a copy. Other routes do not vary."""
    site = LiveSite(declared=cached(ttl=60) if everywhere else None, everywhere=everywhere)
    async with site.served() as client:
        answers = [await client.get("/items")]
        while "; hit" not in (await client.get("/items")).headers["cache-status"]:
            pass  # the entry is kept a moment after its answer
        answers += [await client.head("/items"), await client.get("/items")]
        answers.append(await client.get("/items", headers={"if-none-match": answers[0].headers["etag"]}))
        assert [answer.status_code for answer in answers] == [200, 200, 200, 304]
        assert {answer.headers["vary"] for answer in answers} == {"accept"}
        if not everywhere:
            assert "vary" not in (await client.get("/plain/items")).headers


async def test_a_live_answer_that_is_not_stored_varies_by_accept_too() -> None:
    async def page(request: Request) -> Response:
        return JSONResponse({}, headers={"cache-control": "max-age=60"})

    site = LiveSite(page)
    async with site.served() as client:
        assert (await client.get("/items")).headers["vary"] == "accept"
