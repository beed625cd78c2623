"""Delivery of one answer to many followers: sent where it is offered, so that no follower's task wakes for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from quaestor.tasks import ended
from tests.live.live_site import LiveSite
from tests.raw_asgi import scope_of
from tests.support import eventually

pytestmark = pytest.mark.anyio


class Reader:
    """Client of one stream, at ASGI level.

    events: the events so far, as bytes.
    senders: the task that sent each.
    error: raised by the next send.
    gate: open while the client reads.
    """

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.senders: list[asyncio.Task[Any] | None] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.leaves = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        await self.gate.wait()
        if message.get("body", b"").startswith(b"id: "):
            self.events.append(message["body"].split(b"data: ")[1].strip())
            self.senders.append(asyncio.current_task())


def shows(readers: Sequence[Reader], version: int) -> bool:
    """Whether the newest event of each reader is this version."""
    return all(reader.events[-1] == b'{"version":%d}' % version for reader in readers)


@asynccontextmanager
async def following(site: LiveSite, number: int) -> AsyncIterator[tuple[list[Reader], list[asyncio.Task[None]]]]:
    """Readers of one page, each with its first event, and the tasks of their streams."""
    readers = [Reader() for _ in range(number)]
    scopes = [scope_of("/items", (b"accept", b"text/event-stream")) for _ in readers]
    streams = [
        asyncio.ensure_future(site.app(scope, reader.receive, reader.send))
        for scope, reader in zip(scopes, readers, strict=True)
    ]
    try:
        await eventually(lambda: all(reader.events for reader in readers))
        await site.until_followed()
        yield readers, streams
    finally:
        await ended(streams)
        await site.nobody_left()
        await site.live().stop()


async def callbacks_of_a_change(number: int) -> int:
    """Callbacks that the event loop is given for one change, until all followers have it."""
    site = LiveSite()
    loop: Any = asyncio.get_running_loop()
    counts, call_soon = Counter[str](), loop.call_soon

    def counted(*arguments: Any, **options: Any) -> Any:
        counts["calls"] += 1
        return call_soon(*arguments, **options)

    async with following(site, number) as (readers, _):
        for _ in range(10):
            await asyncio.sleep(0)  # all streams wait for the next answer
        loop.call_soon = counted
        try:
            site.change(2)
            turns = 0
            while any(len(reader.events) < 2 for reader in readers):
                await asyncio.sleep(0)
                turns += 1
        finally:
            del loop.call_soon
        senders = {reader.senders[1] for reader in readers}
        assert len(senders) == 1, "the task that reads the answer sends it to all"
    return counts["calls"]


async def test_followers_cost_the_event_loop_no_callback() -> None:
    """The number of callbacks does not grow with the followers: one wake-up for all of them."""
    few, many = await callbacks_of_a_change(2), await callbacks_of_a_change(100)
    assert 0 < many < few + 49, "less than a callback for every second further follower"


async def test_a_send_that_waits_goes_on_in_the_streams_own_task_and_later_answers_follow() -> None:
    site = LiveSite()
    async with following(site, 2) as ((slow, quick), _):
        slow.gate.clear()
        for version in (2, 3, 4):
            site.change(version)
            await eventually(partial(shows, [quick], version))
        assert slow.events == [b'{"version":1}']
        slow.gate.set()
        await eventually(partial(shows, [slow], 4))
        assert slow.events == [b'{"version":1}', b'{"version":2}', b'{"version":4}']
        assert slow.senders[1] is slow.senders[2] is not quick.senders[1]


async def test_an_error_of_one_client_reaches_its_own_stream_only() -> None:
    site = LiveSite()
    async with following(site, 3) as (readers, streams):
        readers[1].error = OSError("gone")
        site.change(2)
        await eventually(partial(shows, [readers[0], readers[2]], 2))
        await asyncio.wait(streams[1:2], timeout=20)
        assert isinstance(streams[1].exception(), OSError)
        assert [stream.done() for stream in streams] == [False, True, False]


async def test_middlewares_that_relay_answers_deliver_each_answer() -> None:
    """Starlette's BaseHTTPMiddleware passes each message from task to task."""

    class Relay(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            return await call_next(request)

    site = LiveSite(outer=[Middleware(Relay)])
    async with following(site, 3) as (readers, _):
        for version in range(2, 6):
            site.change(version)
            await eventually(partial(shows, readers, version))
    assert all(reader.events == [b'{"version":%d}' % version for version in range(1, 6)] for reader in readers)
