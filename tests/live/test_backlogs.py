"""Unsent messages of a socket are bounded, whatever its client sends and however slowly it reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from concurrent.futures import Future
from typing import Any

import pytest

from quaestor.live.websocket.connection import SocketConnection
from quaestor.live.websocket.forms import EXTENDED_JSON
from quaestor.live.websocket.limits import SocketLimits
from tests.live.socket_site import Json, Site, client_of, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio
LIMITS = SocketLimits(waiting=50, waiting_bytes=200_000, messages_per_second=100_000)


class SlowClient:
    """Client in the process of its endpoint, which takes a message only when the test lets it.

    said: number of its messages that the endpoint has taken.
    heard: messages that it took.
    """

    def __init__(self, site: Site) -> None:
        self.said = 0
        self.heard: list[Json] = []
        self.reads = False
        self._messages: list[Json] = []
        self._site = site
        self._over: Future[Any] | None = None

    def say(self, *messages: Json) -> None:
        """Send messages, again and again the last one."""
        self._messages = list(messages)

    async def receive(self) -> Json:
        while not self._messages:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.005)
        message = self._messages.pop(0) if len(self._messages) > 1 else self._messages[0]
        self.said += 1
        await asyncio.sleep(0)
        return {"type": "websocket.receive", "text": json.dumps(message)}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        while not self.reads:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.005)
        self.heard.append(json.loads(message["text"]))

    def begin(self) -> None:
        endpoint = self._site.live._endpoint
        serving = endpoint.serve({"headers": []}, self.receive, self.send, form=EXTENDED_JSON, prompt=True)
        self._over = asyncio.run_coroutine_threadsafe(serving, self._site.loops[0])

    def end(self) -> None:
        assert self._over is not None
        self._over.cancel()

    @property
    def socket(self) -> SocketConnection:
        (socket,) = self._site.live._endpoint._sockets
        return socket


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_backlogs", limits=LIMITS) as running:
        yield running


@pytest.fixture
def slow(site: Site) -> Iterator[SlowClient]:
    client = SlowClient(site)
    client.begin()
    yield client
    client.end()


@pytest.mark.parametrize("message", [{"type": "ping"}, {"type": "nonsense"}])
async def test_a_client_that_reads_nothing_is_not_heard_for_ever(slow: SlowClient, message: Json) -> None:
    slow.say({"type": "ping"}, message)
    await eventually(lambda: slow.said > LIMITS.waiting)
    await asyncio.sleep(0.1)
    said = slow.said
    await asyncio.sleep(0.3)
    assert slow.said == said < 2 * LIMITS.waiting
    assert len(slow.socket.outbox) <= LIMITS.waiting + 1
    slow.reads = True
    said = slow.said
    await eventually(lambda: slow.said > said + 10)


async def test_an_ended_subscription_sends_nothing_that_still_waited(slow: SlowClient, items: Any) -> None:
    """P3: behind the answer to a later `ping` nothing of the former subscription follows; its name may be used again."""
    items.insert_one({"_id": 1, "old": True})
    slow.reads = True
    slow.say({"type": "subscribe", "id": "a", "bucket": "items"}, {"type": "unsubscribe", "id": "unknown"})
    await eventually(lambda: bool(slow.heard))
    slow.reads = False
    items.insert_many([{"_id": number, "old": True} for number in range(2, 7)])
    await eventually(lambda: len(slow.socket.outbox) >= 3)
    slow.say(
        {"type": "unsubscribe", "id": "a"},
        {"type": "subscribe", "id": "a", "bucket": "items", "query": '{"old": false}'},
        {"type": "unsubscribe", "id": "unknown"},
    )
    await eventually(lambda: not slow._messages[1:])
    await asyncio.sleep(0.1)
    before = len(slow.heard)
    slow.reads = True
    await eventually(lambda: slow.heard[-1]["type"] == "result" and len(slow.heard) > before)
    assert len(slow.heard) <= before + 2  # the message that was being sent, and the new result


async def test_large_events_that_wait_are_bounded_by_their_size(site: Site, slow: SlowClient, items: Any) -> None:
    items.insert_one({"_id": 1, "n": 0})
    slow.reads = True
    slow.say({"type": "subscribe", "id": "a", "bucket": "items"}, {"type": "unsubscribe", "id": "unknown"})
    await eventually(lambda: bool(slow.heard))
    slow.reads = False
    outbox = slow.socket.outbox
    async with client_of(site) as quick:
        await quick.subscribe()
        for n in range(1, 21):
            items.update_one({"_id": 1}, {"$set": {"n": n, "text": "x" * 50_000}})
            while (await quick.hear())["data"]["n"] != n:
                pass
    assert outbox.size < 2 * LIMITS.waiting_bytes
    slow.reads = True
    await eventually(lambda: slow.heard[-1]["type"] == "result" and slow.heard[-1]["data"][0]["n"] == 20)
    assert {"refreshed"} <= {message["type"] for message in slow.heard}
    assert len([message for message in slow.heard if message["type"] == "match"]) < 20
