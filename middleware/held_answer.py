"""The held-back answer of a handler: held until it is whole, or until it is known that it will not be stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from quaestor.middleware.handovers import HandlerAnswer
from quaestor.middleware.interface import RawHeaders
from quaestor.observability.event_log import EventLog

HOLD_S = 1.0
"""How long an answer that arrives in pieces is held back; after that it passes through, uncached."""


class HeldAnswer:
    """A buffer for the pieces of one answer, in order.

    started: status and fields have arrived.
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
        """Take status and fields as the handler sent them."""
        self.started = True
        self.status = status
        self.headers = [(bytes(name), bytes(value)) for name, value in headers]

    def confirm(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Replace a 304 by the stored answer that it has confirmed."""
        self.status, self.headers, self._chunks, self.confirmed = status, headers, [body], True

    def complete(self, headers: RawHeaders, before: bytes) -> None:
        """Make a whole answer of a 206: the stored beginning comes before the rest."""
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
        """Return everything that was held back, and hold nothing of the body from then on."""
        body = self.body if self._chunks else None
        self._chunks = []
        return HandlerAnswer(status=self.status, headers=self.headers, body=body, confirmed=self.confirmed)


class ReleaseTimer:
    """A timer that calls `release` once an answer in pieces has been held back for HOLD_S."""

    def __init__(self, release: Callable[[], Awaitable[None]]) -> None:
        self._release = release
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Start the timer at the first piece; further calls change nothing."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HOLD_S, self._fire)

    def _fire(self) -> None:
        self._task = asyncio.ensure_future(self._release())

    async def stop(self, telemetry: EventLog) -> None:
        """Stop the timer, and wait for a release that is under way. Report a client that has left meanwhile."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait((self._task,))
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                telemetry.event("exchange.client_left", error=str(error))
