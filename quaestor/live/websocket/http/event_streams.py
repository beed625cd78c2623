"""Stream of server-sent events for one query: the messages of a socket with one subscription, for an `EventSource`."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import MutableMapping
from typing import Any, Final

from starlette.requests import Request
from starlette.types import Send

from quaestor.live import sse
from quaestor.live.websocket.http import answers
from quaestor.live.websocket.http.parameters import LiveRequest
from quaestor.live.websocket.problems import ProtocolError
from quaestor.tasks import client_left

_KIND: Final = re.compile(r'"type":"([a-z]+)"')
_TOKEN: Final = '"offset_token":"'
_LONGEST_RETRY_MS: Final = 5_000
_MOST_TOKEN: Final = 256


class EventStream:
    """Stream of one client. `receive` and `send` are those of a socket that carries one subscription.

    An error before the first event is an answer with its status. The id of an event is its position.
    """

    def __init__(self, request: Request, asked: LiveRequest, send: Send, *, heartbeat_s: float) -> None:
        self._request = request
        self._asked = asked
        self._send = send
        self._heartbeat_s = heartbeat_s
        self._subscribed = False
        self._begun = False
        self._over = asyncio.Event()

    def leave(self) -> None:
        """End the stream: the client has left, or the service stops."""
        self._over.set()

    async def watch(self) -> None:
        """Wait until the client has left."""
        await client_left(self._request.receive)
        self.leave()

    async def receive(self) -> MutableMapping[str, Any]:
        """The subscription, and at last the end of the socket. Meanwhile comments show that the connection lives."""
        if not self._subscribed:
            self._subscribed = True
            return {"type": "websocket.receive", "text": self._subscription()}
        while not self._over.is_set():
            try:
                async with asyncio.timeout(self._heartbeat_s):
                    await self._over.wait()
            except TimeoutError:
                if self._begun:
                    await self._write(sse.HEARTBEAT)
        return {"type": "websocket.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a message of the socket as an event."""
        text: str = message["text"]
        kind = match[1] if (match := _KIND.search(text)) else ""
        if kind == "error" and not self._begun:
            return await self._refuse(text)
        if not self._begun:
            self._begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(sse.HEADERS)})
            await self._write(sse.retry(random.randint(500, _LONGEST_RETRY_MS)))
        await self._write(sse.event([text.encode()], name=kind.encode(), etag=_token(text, kind).encode()))
        if kind == "error":
            self.leave()
        return None

    async def finish(self) -> None:
        """End the answer."""
        if self._begun:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refuse(self, text: str) -> None:
        error = json.loads(text)["error"]
        problem = ProtocolError(error["status"], error["message"])
        self.leave()
        await answers.problem(problem)(self._request.scope, self._request.receive, self._send)

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def _subscription(self) -> str:
        position = self._asked.position
        token = self._request.headers.get("last-event-id") or (None if position is None else position.token)
        message = self._asked.message.model_copy(update={"offset_token": token and token[:_MOST_TOKEN]})
        return message.model_dump_json()


def _token(text: str, kind: str) -> str:
    """The position behind a message; empty: it has none.

    The field stands behind the record of a `match`, and before the records of a `result`.
    """
    place = text.rfind(_TOKEN) if kind == "match" else text.find(_TOKEN)
    if place < 0 or kind not in ("match", "result", "resumed"):
        return ""
    return text[place + len(_TOKEN) :].partition('"')[0]
