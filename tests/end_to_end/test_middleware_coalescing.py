"""Coalescing: one of several concurrent misses runs the handler, also if its run fails or is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from tests.end_to_end.site import Site, raw_get, status_of, until_waiting
from tests.hand_driven import reads

pytestmark = pytest.mark.anyio


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
    await until_waiting(requests)
    go_on.set()
    answers = await asyncio.gather(*requests)
    assert site.runs == 1
    assert {answer.text for answer in answers} == {"x"}
    assert sorted({status_of(answer) for answer in answers}) == [
        "Quaestor; fwd=uri-miss; collapsed",
        "Quaestor; fwd=uri-miss; stored",
    ]
    assert site.engine.count("requests", outcome="coalesced") == 19


@pytest.mark.parametrize("dies", [False, True])
async def test_followers_are_handed_what_memory_has_no_room_for(dies: bool) -> None:
    """One handler run answers all, though its entry is kept nowhere; not if a write ends the entry before they look."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        reads()
        if not arrived.is_set():
            arrived.set()
            await go_on.wait()
        return PlainTextResponse(str(site.runs))

    site = Site(handler, memory_bytes=1)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: object) -> None:
        if dies:  # between the leader's landing and the followers' look
            site.engine.registry.kill()

    headers = [(b"host", b"shop.test")]
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "path": "/items", "raw_path": b"/items", "query_string": b"",
        "headers": headers, "root_path": "",
    }  # fmt: skip
    leader = asyncio.create_task(site.app(scope, receive, send))
    await arrived.wait()
    requests = [asyncio.create_task(site.get()) for _ in range(5)]
    await until_waiting(requests)
    go_on.set()
    answers = await asyncio.gather(*requests)
    await leader
    if dies:
        assert "1" not in {answer.text for answer in answers}
    else:
        assert {answer.text for answer in answers} == {"1"}
        assert site.runs == 1


async def test_followers_of_an_unstorable_answer_run_their_own_handlers() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        arrived.set()
        await go_on.wait()
        return PlainTextResponse(str(site.runs), headers={"cache-control": "private"})

    site = Site(handler)
    requests = [asyncio.create_task(site.get()) for _ in range(5)]
    await arrived.wait()
    await until_waiting(requests)
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
    await until_waiting(requests)
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
    await until_waiting([follower])
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
    await until_waiting([follower])
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
    await raw_get(site, disconnect=started)
    assert len(site.engine.read_path.coalescing) == 0
    assert len(site.engine.store) == 0
