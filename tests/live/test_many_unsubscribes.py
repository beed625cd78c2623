"""A client that ends subscriptions a million times, most of which do not exist: nothing is kept, and nobody else waits."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Message

from quaestor.live.websocket.forms import EXTENDED_JSON
from quaestor.live.websocket.limits import SocketLimits
from tests.live.site_state import left_of, measured, open_now, tasks_of
from tests.live.socket_site import Site, client_of, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio
PART = 1_000
"""Messages between two subscriptions that exist."""
KEEPERS = [tracemalloc.Filter(True, f"*/quaestor/live/websocket/{name}.py") for name in ("connection", "requests")]
"""The modules that take a message. The rest of the site needs memory for the writes of the test."""


def taken_bytes() -> int:
    """Memory that the endpoint has taken for messages, and not given back."""
    gc.collect()
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(KEEPERS).traces)


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    limits = SocketLimits(messages_per_second=10_000_000)
    with live_site(mongo_url, "many_unsubscribes", limits=limits) as running:
        yield running


class Flood:
    """Client in the process of its endpoint. A real one is limited by its network.

    answers: number of messages of the endpoint, by their type.
    kept_bytes: memory that the endpoint has taken since the first tenth of the messages.
    """

    def __init__(self, messages: int) -> None:
        self.answers: Counter[str] = Counter()
        self.kept_bytes = 0
        self._messages = self._all(messages)
        self._sent = 0

    async def receive(self) -> Message:
        self._sent += 1
        if self._sent % 10 == 0:
            await asyncio.sleep(0)  # a socket, too, brings a few messages at a time
        return next(self._messages)

    async def send(self, message: Message) -> None:
        self.answers[json.loads(message["text"])["type"]] += 1

    def _all(self, messages: int) -> Iterator[Message]:
        for number in range(messages):
            if number == messages // 10:
                self.kept_bytes = -taken_bytes()
            if number % PART == 0:
                yield _message('{"type": "subscribe", "id": "known", "bucket": "items"}')
                yield _message('{"type": "unsubscribe", "id": "known"}')
            yield _message(f'{{"type": "unsubscribe", "id": "u{number}"}}')
        self.kept_bytes += taken_bytes()
        yield {"type": "websocket.disconnect"}


def _message(text: str) -> Message:
    return {"type": "websocket.receive", "text": text}


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("messages", [30 * PART, pytest.param(1_000_000, marks=pytest.mark.slow)])
async def test_unsubscribes_keep_nothing_and_delay_nobody(site: Site, items: Any, messages: int) -> None:
    """Each write reaches another client during the flood. Behind it the site has the tasks and the memory of before."""
    items.insert_one({"_id": 0, "n": 0})
    ended = measured(site, "live_ended_total", reason="unsubscribed")
    async with client_of(site) as near:
        await near.subscribe()
        before = tasks_of(site)
        flood = Flood(messages)
        serving = site.live._endpoint.serve({"headers": []}, flood.receive, flood.send, form=EXTENDED_JSON, prompt=True)
        over = asyncio.run_coroutine_threadsafe(serving, site.loops[0])
        n = 0
        while not over.done():
            n += 1
            items.update_one({"_id": 0}, {"$set": {"n": n}})
            assert (await near.hear())["data"]["n"] == n
        assert over.result() is None
        assert n > messages // (10 * PART)
        assert flood.answers["result"] == messages // PART
        assert set(flood.answers) <= {"result", "match"}
        assert measured(site, "live_ended_total", reason="unsubscribed") - ended == messages // PART
        assert flood.kept_bytes < messages  # a byte for each: less than a reference
        assert open_now(site) == (1, 1)
        await eventually(lambda: not left_of(site, before))
