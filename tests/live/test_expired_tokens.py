"""Credentials with an end: renewed in time, expired in the midst of a subscription, and expired during a long poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from quaestor.clock import system_clock
from quaestor.live.websocket.principals import Grant
from quaestor.rest.access import Principal
from tests.live.site_state import measured, open_now
from tests.live.socket_site import Site, client_of, live_site
from tests.live.test_rights_meanwhile import gated_groups
from tests.support import eventually

pytestmark = pytest.mark.anyio
LIFE_MS = 1_000_000
"""Life of the first token. The second one lives twice as long, and so on: far longer than a test takes."""


@dataclass(slots=True)
class Issuer:
    """Issuer of tokens, with the clock of the endpoint.

    asked: number of tokens that were looked up.
    gate: lookups wait for it.
    """

    begun_ms: int = field(default_factory=system_clock)
    later_ms: int = 0
    asked: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def clock(self) -> int:
        return system_clock() + self.later_ms

    def expire(self, number: int) -> None:
        """Let the time come at which this token ends."""
        self.later_ms = number * LIFE_MS

    async def grant(self, request: Request) -> Grant:
        """The grant of `Bearer <number>`."""
        number = int(request.headers.get("authorization", "").removeprefix("Bearer ") or 1)
        self.asked += 1
        await self.gate.wait()
        return Grant(principal=Principal(user="ann"), expires_at_ms=self.begun_ms + number * LIFE_MS)


@pytest.fixture
def issuer() -> Issuer:
    issuer = Issuer()
    issuer.gate.set()
    return issuer


@pytest.fixture
def site(mongo_url: str, prefix: str, issuer: Issuer) -> Iterator[Site]:
    with live_site(mongo_url, prefix, principal=issuer.grant, settings={"live_wait_ms": 20_000}) as running:
        running.live._endpoint._clock = issuer.clock
        yield running


async def on_loop(site: Site, work: Callable[[], Any]) -> None:
    """Call a function on the site's event loop."""

    async def called() -> None:
        work()

    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(), site.loops[0]))


async def look(site: Site) -> None:
    """Look at all sockets now, as the endpoint does each second."""

    def look_at_all() -> None:
        for socket in site.live._endpoint._sockets:
            socket.look(site.loops[0].time())

    await on_loop(site, look_at_all)


async def test_a_token_renewed_in_time_keeps_the_stream(site: Site, items: Any, issuer: Issuer) -> None:
    """The end of the first token changes nothing, and the end of the second one ends the subscription."""
    async with client_of(site) as client:
        await client.subscribe(token="1")
        await client.say(type="token", token="2")
        await client.say(type="ping")
        assert (await client.hear())["type"] == "pong"
        issuer.expire(1)
        await look(site)
        items.insert_one({"_id": 1})
        assert await client.match() == ("add", "insert", None, 1)
        issuer.expire(2)
        await look(site)
        assert (await client.hear())["error"]["status"] == 401
        assert open_now(site) == (1, 0)


async def test_a_client_signs_in_again_after_the_end(site: Site, items: Any, issuer: Issuer) -> None:
    """The expired token begins nothing any more. A new one does on the same socket, and events follow."""
    async with client_of(site) as client:
        await client.subscribe(token="1")
        issuer.expire(1)
        await look(site)
        assert (await client.hear())["error"]["status"] == 401
        assert (await client.subscribe())["error"]["status"] == 401
        items.insert_one({"_id": 1})
        assert (await client.subscribe(token="2"))["data"] == [{"_id": 1}]
        items.insert_one({"_id": 2})
        assert await client.match() == ("add", "insert", None, 2)


async def test_a_token_that_ends_while_its_query_is_looked_for_begins_nothing(
    site: Site, items: Any, issuer: Issuer
) -> None:
    """The client receives 401 for the subscription in flight, and no record."""
    items.insert_one({"_id": 1})
    async with client_of(site) as client:
        await client.subscribe("first", token="1")
        with gated_groups(site) as gate:
            await client.say(type="subscribe", id="second", bucket="items")
            await eventually(gate.reached.is_set)
            issuer.expire(1)
            await look(site)
            assert (await client.hear())["id"] == "first"
            gate.open.set()
            refused = await client.hear()
        assert (refused["id"], refused["type"], refused.get("error", {}).get("status")) == ("second", "error", 401)
        assert open_now(site) == (1, 0)


async def test_a_token_that_ends_while_it_is_looked_up_begins_nothing(site: Site, items: Any, issuer: Issuer) -> None:
    """The application answers about the token when its time is over already."""
    async with client_of(site) as client:
        await on_loop(site, issuer.gate.clear)
        await client.say(type="subscribe", id="a", bucket="items", token="1")
        await eventually(lambda: issuer.asked == 1)
        issuer.expire(1)
        await on_loop(site, issuer.gate.set)
        assert (await client.hear())["error"]["status"] == 401
        assert open_now(site) == (1, 0)


async def test_a_token_that_ends_during_a_long_poll_is_a_401(site: Site, items: Any, issuer: Issuer) -> None:
    """The write that ends the wait is not shown. A new token receives it."""
    async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web:

        async def get(url: str, token: int) -> httpx.Response:
            return await web.get(url, headers={"authorization": f"Bearer {token}"})

        snapshot = (await get("/items", 1)).json()
        poll = asyncio.create_task(get("/items" + snapshot["next"], 1))
        await eventually(lambda: measured(site, "live_polls") == 1)
        issuer.expire(1)
        items.insert_one({"_id": "hidden"})
        refused = await poll
        assert refused.status_code == 401
        assert "hidden" not in refused.text
        assert refused.headers["cache-control"] == "private, no-store"
        (change,) = (await get("/items" + snapshot["next"], 2)).json()["changes"]
        assert change["data"] == {"_id": "hidden"}
