"""Bodies of requests: read before the handler runs where they are part of the key, noticed where they are not."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.middleware.interface import Message, Receive

MAX_KEYED_BODY_BYTES = 64 * 1024
"""Requests with more are passed by: questions are short."""
BY_BODY = frozenset({"POST", "QUERY"})
"""QUERY: draft-ietf-httpbis-safe-method-w-body. Safe, cacheable, and its body is part of the key. POST where a route says so."""


class Body:
    """The part of a request's body that has been read, for a handler to read again.

    whole: all of it; None if it is longer than the limit, or if the client left.
    """

    def __init__(self, messages: Sequence[Message], whole: bytes | None, receive: Receive) -> None:
        self.whole = whole
        self._messages = list(messages)
        self._receive = receive

    async def receive(self) -> Message:
        """The next message, from the beginning: an ASGI `receive`."""
        return self._messages.pop(0) if self._messages else await self._receive()


async def read(receive: Receive, *, limit: int = MAX_KEYED_BODY_BYTES) -> Body:
    """Read a body; no more than one message beyond the limit."""
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


class UnkeyedBody:
    """A request's body as its handler reads it, when it is not part of the key.

    announced: a field said that there would be one; the cache has seen to that then.
    limit: bytes, and messages, that are remembered for a second handler run.
    seen: something came that no field announced: the answer must not be stored.
    """

    def __init__(self, receive: Receive, *, announced: bool, limit: int = MAX_KEYED_BODY_BYTES) -> None:
        self.seen = False
        self._receive = receive
        self._announced = announced
        self._limit = limit
        self._size = 0
        self._read: list[Message] | None = []
        self._again: list[Message] = []

    async def receive(self) -> Message:
        """The next message, for the handler: an ASGI `receive`."""
        if self._again:
            return self._again.pop(0)
        message = await self._receive()
        if message["type"] == "http.request":
            body = message.get("body", b"")
            if body:
                self.seen = not self._announced
            if self._read is not None:
                self._size += len(body)
                self._read.append(dict(message))
                if self._size > self._limit or len(self._read) > self._limit:
                    self._read = None
        return message

    def begin_again(self) -> None:
        """Hand everything that was read out once more, from the beginning. Instead of what was too long to be remembered comes
        the end of the connection: nobody waits for what will not come."""
        self._again = [{"type": "http.disconnect"}] if self._read is None else list(self._read)
