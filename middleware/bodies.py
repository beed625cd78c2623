"""Bodies of requests: read before the handler runs where they are part of the key, watched where they are not."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.middleware.interface import Message, Receive

MAX_KEYED_BODY_BYTES = 64 * 1024
"""Requests with larger bodies bypass the cache: bodies that ask a question are short."""
BY_BODY = frozenset({"POST", "QUERY"})
"""Methods whose body can be part of the key. QUERY (draft-ietf-httpbis-safe-method-w-body) is safe and cacheable; a route may
declare the same of POST."""


class Body:
    """A request's body that was read ahead, for a handler to read again.

    whole: all of it; None if it is longer than the limit, or if the client left.
    """

    def __init__(self, messages: Sequence[Message], whole: bytes | None, receive: Receive) -> None:
        self.whole = whole
        self._messages = list(messages)
        self._receive = receive

    async def receive(self) -> Message:
        """Return the next message, from the beginning: an ASGI `receive`."""
        return self._messages.pop(0) if self._messages else await self._receive()


async def read(receive: Receive, *, limit: int = MAX_KEYED_BODY_BYTES) -> Body:
    """Read a body, and at most one message beyond the limit (in bytes, and in messages)."""
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
    """A request's body on its way to the handler, when it is not part of the key.

    announced: a field announced the body, and the cache has taken account of it.
    limit: bytes, and messages, that are kept for a second handler run.
    seen: a body came that no field announced: the answer must not be stored.
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
        """Return the next message, for the handler: an ASGI `receive`."""
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
        """Replay all messages from the beginning. If they exceeded the limit, report a disconnect instead: the handler must not
        wait for messages that never come."""
        self._again = [{"type": "http.disconnect"}] if self._read is None else list(self._read)
