"""Requests that are keyed by their body: it is read before the handler runs, within a bound, and handed to it as it came."""

from __future__ import annotations

from collections.abc import Sequence

from middleware.interface import Message, Receive

MAX_KEYED_BODY_BYTES = 64 * 1024
"""Requests with more are passed by: questions are short."""
BY_BODY = frozenset({"POST", "QUERY"})
"""QUERY: draft-ietf-httpbis-safe-method-w-body. Safe, cacheable, and its body is part of the key. POST where a route says so."""


class Body:
    """What of a request's body has been read.

    whole: all of it; None if it is longer than the limit, or if the client left.
    """

    def __init__(self, messages: Sequence[Message], whole: bytes | None, receive: Receive) -> None:
        self.whole = whole
        self._messages = list(messages)
        self._receive = receive

    async def receive(self) -> Message:
        """An ASGI `receive` that begins at the beginning."""
        return self._messages.pop(0) if self._messages else await self._receive()


async def read(receive: Receive, *, limit: int = MAX_KEYED_BODY_BYTES) -> Body:
    """Reads no more than one message beyond the limit."""
    messages: list[Message] = []
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request":
            return Body(messages, None, receive)
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit or len(messages) > limit:
            return Body(messages, None, receive)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return Body(messages, b"".join(chunks), receive)
