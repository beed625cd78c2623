"""Half-open connections: the TCP connection stays, and the client neither reads nor answers. The endpoint ends the socket."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.setups.faults.proxy import Link, Links
from quaestor.live.websocket.limits import SocketLimits
from tests.live.site_state import left_of, measured, open_now, server_errors, tasks_of
from tests.live.socket_site import Client, Json, Site, client_of, live_site
from tests.support import DEADLINE_S, eventually

pytestmark = pytest.mark.anyio
LIMITS = SocketLimits(slow_s=1, silence_s=1, waiting=10)
CLIENTS = 5
TEXT = secrets.token_hex(250_000)
"""Content of a record that no compression makes small, so that few events fill the buffers of a connection."""


@pytest.fixture
def site(mongo_url: str, prefix: str) -> Iterator[Site]:
    with live_site(mongo_url, prefix, limits=LIMITS) as running:
        yield running


@pytest.fixture
def link(links: Links, site: Site) -> Link:
    """A link to the site that takes little from it while it is stalled."""
    port = urlsplit(site.http).port
    assert port is not None
    return links.to(port, receive_buffer=4_096)


@asynccontextmanager
async def clients_behind(link: Link, site: Site) -> AsyncIterator[list[Client]]:
    """Clients whose connections pass the link. Their own library sends no signs of life."""
    distant = replace(site, url=f"ws://127.0.0.1:{link.port}/live")
    async with AsyncExitStack() as stack:
        opened = [client_of(distant, ping_interval=None, close_timeout=0.1) for _ in range(CLIENTS)]
        yield [await stack.enter_async_context(client) for client in opened]


async def next_n(client: Client) -> int:
    """The number in the next event."""
    message = await asyncio.wait_for(client.hear(), DEADLINE_S)
    assert message["type"] == "match", message
    number: int = message["data"]["n"]
    return number


async def test_clients_that_stop_to_answer_are_ended(site: Site, items: Any, link: Link) -> None:
    """Clients that send `ping` fall silent: `silent` ends their sockets, and another client has every event meanwhile."""
    items.insert_one({"_id": 0, "n": 0})
    with server_errors() as errors:
        async with client_of(site) as near:
            await near.subscribe()
            before = tasks_of(site)
            async with clients_behind(link, site) as distant:
                for client in distant:
                    await client.subscribe()
                    await client.say(type="ping")
                    assert (await client.hear())["type"] == "pong"
                assert open_now(site) == (1 + CLIENTS, 1 + CLIENTS)
                link.stall()
                n = 0
                while open_now(site)[1] > 1:
                    n += 1
                    items.update_one({"_id": 0}, {"$set": {"n": n}})
                    assert await next_n(near) == n
                assert measured(site, "live_ended_total", reason="silent") == CLIENTS
                await eventually(lambda: open_now(site) == (1, 1))
            await eventually(lambda: not left_of(site, before))
    assert errors == []


async def test_clients_that_stop_to_read_are_ended(site: Site, items: Any, link: Link) -> None:
    """Clients that never send `ping` stop to read large events: `slow` ends their sockets, and nobody else waits."""
    items.insert_one({"_id": 0, "n": 0, "text": TEXT})
    with server_errors() as errors:
        async with client_of(site) as near:
            await near.subscribe(delta=False)
            before = tasks_of(site)
            async with clients_behind(link, site) as distant:
                for client in distant:
                    await client.subscribe()
                link.stall()
                n = 0
                while open_now(site)[1] > 1:
                    n += 1
                    items.update_one({"_id": 0}, {"$set": {"n": n}})
                    assert await next_n(near) == n
                assert measured(site, "live_ended_total", reason="slow") == CLIENTS
                assert measured(site, "live_slow_clients_total") == CLIENTS
                await eventually(lambda: open_now(site) == (1, 1))
            await eventually(lambda: not left_of(site, before))
    assert errors == []


async def test_a_client_that_sends_and_never_reads_is_ended(site: Site, items: Any) -> None:
    """Answers to its messages fill the connection. The endpoint then hears the client no more, and ends the socket."""
    items.insert_one({"_id": 0, "text": TEXT})
    with server_errors() as errors:
        async with client_of(site) as near:
            await near.subscribe()
            async with client_of(site, max_queue=1, ping_interval=None, close_timeout=0.1) as deaf:
                answered: Json = {"type": "subscribe", "bucket": "items"}
                for number in range(100):
                    await deaf.say(id=f"s{number}", **answered)
                await eventually(lambda: measured(site, "live_slow_clients_total") == 1)
                assert measured(site, "live_ended_total", reason="slow") > 0
                items.update_one({"_id": 0}, {"$set": {"text": "short"}})
                assert json.loads(await asyncio.wait_for(near.connection.recv(), DEADLINE_S))["type"] == "match"
            await eventually(lambda: open_now(site) == (1, 1))
    assert errors == []
