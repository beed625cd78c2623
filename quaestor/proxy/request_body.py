"""Body of a request on its way to the origin: the part that must come before the origin is asked, and the slowest pace.

There are few connections to the origin, and all clients need them. A client therefore receives one only when its body is
complete, or a good part of it has come. The client keeps the connection only while it goes on sending. Time counts while the
proxy waits for the client, never while the origin is slow to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Literal

from quaestor.middleware.interface import Message, Receive
from quaestor.proxy.connection import RequestBrokeOffError
from quaestor.proxy.options import ProxyOptions

TooSlow = Literal["rate", "time"]
"""rate: the body fell behind the slowest pace, silence included. time: the whole body took too long."""


class SlowBodyError(RequestBrokeOffError):
    """Error that a request's body came too slowly.

    why: the bound that was passed.
    """

    def __init__(self, why: TooSlow, detail: str) -> None:
        super().__init__(detail)
        self.why = why


class BodyPace:
    """Pace of one body: how long the proxy may still wait for its sender. Pure; times in seconds.

    Each byte adds time at the slowest allowed rate, but never beyond the patience. A sender that has sent much at first
    therefore cannot be silent for long afterwards.
    """

    __slots__ = ("_min_bytes_per_s", "_patience_s", "_slack_s", "_total_s")

    def __init__(self, *, patience_s: float, min_bytes_per_s: float, total_s: float) -> None:
        self._patience_s = patience_s
        self._min_bytes_per_s = min_bytes_per_s
        self._slack_s = patience_s
        self._total_s = total_s

    @property
    def allowed_s(self) -> float:
        """Longest wait for the next piece, in seconds."""
        return max(0.0, min(self._slack_s, self._total_s))

    @property
    def exceeded(self) -> TooSlow:
        """Bound that is reached first."""
        return "rate" if self._slack_s <= self._total_s else "time"

    def received(self, size_bytes: int, *, waited_s: float) -> None:
        """Count a piece that has come."""
        self._total_s -= waited_s
        earned_s = size_bytes / self._min_bytes_per_s
        self._slack_s = min(self._patience_s, self._slack_s - waited_s + earned_s)


class RequestBody:
    """Body of one request. Call read_ahead(), then pieces(), each once.

    left: whether the client has gone away.
    on_end: called when the last piece has come from the client.

    Both methods raise SlowBodyError, and RequestBrokeOffError if the client went away.
    """

    def __init__(self, receive: Receive, options: ProxyOptions, *, on_end: Callable[[], None]) -> None:
        self.left = False
        self._receive = receive
        self._on_end = on_end
        self._ahead: list[bytes] = []
        self._complete = False
        self._ahead_bytes = options.body_ahead_bytes
        self._pace = BodyPace(
            patience_s=options.body_patience_s,
            min_bytes_per_s=options.body_min_bytes_per_s,
            total_s=options.body_timeout_s,
        )

    @property
    def complete(self) -> bool:
        """Whether the whole body has come from the client."""
        return self._complete

    async def read_ahead(self) -> None:
        """Wait until the body is complete, or enough of it has come to ask the origin."""
        held_bytes = 0
        while not self._complete and held_bytes < self._ahead_bytes:
            piece = await self._next()
            held_bytes += len(piece)
            if piece:
                self._ahead.append(piece)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Pieces of the whole body; none is empty."""
        ahead, self._ahead = self._ahead, []
        ahead.reverse()
        while ahead:
            yield ahead.pop()
        while not self._complete:
            if piece := await self._next():
                yield piece

    async def _next(self) -> bytes:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(self._pace.allowed_s):
                message: Message = await self._receive()
        except TimeoutError as error:
            raise SlowBodyError(self._pace.exceeded, "its body came too slowly") from error
        if message["type"] == "http.disconnect":
            self.left = True
            raise RequestBrokeOffError("left")
        piece: bytes = message.get("body", b"")
        self._pace.received(len(piece), waited_s=loop.time() - began_s)
        if not message.get("more_body", False):
            self._complete = True
            self._on_end()
        return piece


def has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a request announces a body (RFC 9112, section 6)."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ") != b"")
        for name, value in headers
    )
