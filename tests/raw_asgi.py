"""One request at ASGI level, as no client would send it: what a server might hand over all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, MutableMapping
from typing import Any, NamedTuple

Message = MutableMapping[str, Any]

DEADLINE_S = 20.0


class Exchanged(NamedTuple):
    """An answer as it was sent: its fields in order, as they were spelt."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def of(self, name: bytes) -> list[bytes]:
        return [value for field, value in self.headers if field.lower() == name]

    def without(self, *names: bytes) -> Exchanged:
        return self._replace(headers=[field for field in self.headers if field[0].lower() not in names])


def scope_of(
    target: str, *headers: tuple[bytes, bytes], method: str = "GET", **further: Any
) -> MutableMapping[str, Any]:
    """The scope of a request for this target, as a server would make it."""
    path, _, query = target.partition("?")
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"shop.test"), *headers], "client": ("127.0.0.1", 4711), "server": ("127.0.0.1", 80),
        **further,
    }  # fmt: skip


async def exchanged(
    app: Any, scope: MutableMapping[str, Any], body: Iterable[bytes] = (b"",), *, stays: bool = False
) -> Exchanged:
    """The app's answer to a scope of type http.

    body: the request's, in pieces.
    stays: the client waits for its answer. Otherwise it is gone once its body was read.
    """
    pieces = list(body)
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": n + 1 < len(pieces)} for n, piece in enumerate(pieces)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        if stays:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async with asyncio.timeout(DEADLINE_S):
        await app(scope, receive, send)
    whole = b"".join(message.get("body", b"") for message in sent)
    return Exchanged(sent[0]["status"], list(sent[0]["headers"]), whole)


async def answered(app: Any, scope: MutableMapping[str, Any], body: bytes = b"") -> tuple[int, bytes]:
    """Status and whole body of the app's answer to a scope of type http, whose client is gone once its body was read."""
    exchange = await exchanged(app, scope, (body,))
    return exchange.status, exchange.body
