"""Held-back answer of a handler: until it is whole, or until it turns out that it will not be stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from quaestor.middleware.handovers import HandlerAnswer
from quaestor.middleware.interface import RawHeaders
from quaestor.observability.event_log import EventLog

HOLD_S = 1.0
"""How long an answer that arrives in pieces is held back before it is passed on as it comes, uncached."""


class HeldAnswer:
    """A buffer for the pieces of one answer, in order.

    started: its status and fields are there.
    size: of the body so far, in bytes.
    confirmed: it is the stored answer, which a 304 has confirmed.
    completed: its beginning was stored, and a 206 is its rest.
    """

    def __init__(self) -> None:
        self.started = False
        self.size = 0
        self.status = 0
        self.headers: RawHeaders = []
        self._chunks: list[bytes] = []
        self.confirmed = False
        self.completed = False

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Take status and fields, as they were sent."""
        self.started = True
        self.status = status
        self.headers = [(bytes(name), bytes(value)) for name, value in headers]

    def confirm(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Put the stored answer in the place of a 304 that has confirmed it."""
        self.status, self.headers, self._chunks, self.confirmed = status, headers, [body], True

    def complete(self, headers: RawHeaders, before: bytes) -> None:
        """Make the whole of a 206: what was stored stands before what comes."""
        self.status, self.headers, self.completed = 200, headers, True
        self.add(before)

    def add(self, chunk: bytes) -> None:
        """Take a piece of the body."""
        self._chunks.append(chunk)
        self.size += len(chunk)

    @property
    def body(self) -> bytes:
        """The body so far."""
        return b"".join(self._chunks)

    def release(self) -> HandlerAnswer:
        """Hand out everything that was held back; nothing of the body is held from then on."""
        body = self.body if self._chunks else None
        self._chunks = []
        return HandlerAnswer(status=self.status, headers=self.headers, body=body, confirmed=self.confirmed)


class ReleaseTimer:
    """A clock that calls `release` once an answer that comes in pieces has been held back for long enough."""

    def __init__(self, release: Callable[[], Awaitable[None]]) -> None:
        self._release = release
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Start the clock with the first piece; further calls change nothing."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOLD_S, self._fire)

    def _fire(self) -> None:
        self._task = asyncio.ensure_future(self._release())

    async def stop(self, telemetry: EventLog) -> None:
        """Stop the clock, and wait for a release that is under way. A client that has left meanwhile is reported."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait((self._task,))
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                telemetry.event("exchange.client_left", error=str(error))
