"""Handshakes and credentials of the Python client: failures that may pass count as lost connections, refusals are final."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import anyio
import pytest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from quaestor.client.live.live_client import LiveClient
from quaestor.client.live.sync_live_client import SyncLiveClient
from quaestor.errors import SubscriptionError
from quaestor.live.websocket.limits import SocketLimits
from quaestor.rest.access import Principal
from tests.live.socket_site import client_of, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


class Refusals:
    """Answers to the next handshakes, as a proxy in front gives them.

    status: of the answers.
    times: handshakes that it answers; the endpoint answers the later ones.
    number: of its answers.
    """

    def __init__(self, status: int, *, times: float = math.inf) -> None:
        self.status = status
        self.times = times
        self.number = 0


class Refusing:
    """Middleware that refuses handshakes."""

    def __init__(self, app: ASGIApp, refusals: Refusals) -> None:
        self.app = app
        self.refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusals = self.refusals
        if scope["type"] != "websocket" or refusals.number >= refusals.times:
            await self.app(scope, receive, send)
            return
        refusals.number += 1
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.http.response.start", "status": refusals.status, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"not now"})


class FailingToken:
    """Function that gives the token, and fails so many times first."""

    def __init__(self, *, times: float) -> None:
        self.times = times
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise OSError("no session service")
        return "ann"


def named(request: Request) -> Principal:
    """The principal that the token names."""
    return Principal(user=request.headers.get("authorization", "Bearer nobody").removeprefix("Bearer "))


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 521])
async def test_a_handshake_that_may_succeed_later_is_tried_again(mongo_url: str, prefix: str, status: int) -> None:
    """The stream begins with the first socket that the server opens."""
    refusals = Refusals(status, times=2)
    with live_site(mongo_url, prefix, outer=[Middleware(Refusing, refusals=refusals)]) as site, anyio.fail_after(20):
        async with LiveClient(site.url) as live:
            assert await anext(await live.result_stream("items")) == []
        assert refusals.number == 2


async def test_a_refused_handshake_uses_up_reconnections(mongo_url: str, prefix: str) -> None:
    """The stream fails with the reason. Another attempt of the program may succeed."""
    refusals = Refusals(429)
    with live_site(mongo_url, prefix, outer=[Middleware(Refusing, refusals=refusals)]) as site, anyio.fail_after(20):
        async with LiveClient(site.url) as live:
            with pytest.raises(SubscriptionError, match="429") as error:
                await live.result_stream("items", reconnects=2)
            assert error.value.retryable
            refusals.times = 0
            assert await anext(await live.result_stream("items")) == []


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_final_refusal_ends_the_streams(mongo_url: str, prefix: str, status: int) -> None:
    refusals = Refusals(status)
    with live_site(mongo_url, prefix, outer=[Middleware(Refusing, refusals=refusals)]) as site, anyio.fail_after(20):
        async with LiveClient(site.url) as live:
            with pytest.raises(SubscriptionError, match=str(status)) as error:
                await live.result_stream("items")
            assert not error.value.retryable
        assert refusals.number == 1


async def test_a_client_waits_for_its_place(mongo_url: str, prefix: str) -> None:
    """The endpoint itself answers 429 while another socket of the address is open."""
    limits = SocketLimits(connections_an_address=1)
    with live_site(mongo_url, prefix, limits=limits) as site, anyio.fail_after(20):
        async with client_of(site):
            live = LiveClient(site.url)
            await live.__aenter__()
            waiting = asyncio.create_task(live.result_stream("items"))
            await eventually(lambda: live._failures >= 2)
            assert not waiting.done()
        assert await anext(await waiting) == []
        await live.__aexit__(None, None, None)


async def test_an_error_of_the_token_function_passes(mongo_url: str, prefix: str) -> None:
    """The function is called again before the next connection."""
    token = FailingToken(times=2)
    with live_site(mongo_url, prefix, principal=named) as site, anyio.fail_after(20):
        async with LiveClient(site.url, token=token) as live:
            assert await anext(await live.result_stream("items")) == []
        assert token.calls == 3


async def test_an_error_of_the_token_function_uses_up_reconnections(mongo_url: str, prefix: str) -> None:
    with live_site(mongo_url, prefix, principal=named) as site, anyio.fail_after(20):
        async with LiveClient(site.url, token=FailingToken(times=math.inf)) as live:
            with pytest.raises(SubscriptionError, match="no session service") as error:
                await live.result_stream("items", reconnects=1)
            assert error.value.retryable


def test_a_program_without_an_event_loop_renews_its_credentials(mongo_url: str, prefix: str) -> None:
    """The open socket goes on with the new token."""
    seen: list[str] = []

    def who(request: Request) -> Principal:
        principal = named(request)
        seen.append(str(principal.user))
        return principal

    def until(condition: Callable[[], bool]) -> None:
        live._opened().call(eventually, condition)

    with live_site(mongo_url, prefix, principal=who) as site, SyncLiveClient(site.url, token="ann") as live:
        results = live.result_stream("items")
        assert next(results) == []
        assert set(seen) == {"ann"}
        live.renew("bob")
        until(lambda: seen[-1] == "bob")
        site.database.items.insert_one({"_id": 1})
        assert next(rows for rows in results if rows) == [{"_id": 1}]
