"""Clients that follow a log of pages: a stream of server-sent events, or a WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from quaestor.errors import QuaestorError
from quaestor.live import sse
from quaestor.live.pages.source import PageSource
from quaestor.live.pages.watching import PageWatch
from quaestor.live.prompt_sends import within
from quaestor.live.stream_ends import StreamEnd
from quaestor.tasks import client_left, ended

_RETRY_MS: Final = 1_000
_TRY_LATER: Final = 1_013
_REAUTHORIZE: Final = 1_012


class PageEvents(Response):
    """Answer that is a stream of events, one for each part of a page. The id of the last part is the page's number.

    give_back: called when the stream ends.
    send_s: longest time of one send.
    """

    def __init__(
        self,
        source: PageSource,
        watch: PageWatch,
        name: str,
        after: int,
        *,
        give_back: Callable[[], None],
        send_s: float,
    ) -> None:
        super().__init__()
        self._texts = texts(source, watch, name, after)
        self._give_back = give_back
        self._send_s = send_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client leaves, is too slow, or has to connect again."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(sse.HEADERS)})

            async def write(data: bytes) -> None:
                await within(send({"type": "http.response.body", "body": data, "more_body": True}), self._send_s)

            async def follow() -> None:
                await write(sse.retry(_RETRY_MS))
                async for text, position in self._texts:
                    await write(
                        sse.HEARTBEAT
                        if text is None
                        else sse.event([text.encode()], name=b"page", etag=str(position or "").encode())
                    )

            with suppress(TimeoutError, QuaestorError):
                await until_left(follow, lambda: client_left(receive))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._give_back()


async def follow_socket(socket: WebSocket, source: PageSource, watch: PageWatch, after: int, *, send_s: float) -> None:
    """Send pages over an accepted socket until the client leaves, is too slow, or has to connect again."""
    name = socket.path_params["name"]

    async def follow() -> None:
        async for text, _ in texts(source, watch, name, after):
            if text is not None:
                await within(socket.send_text(text), send_s)

    async def left() -> None:
        with suppress(WebSocketDisconnect):
            while True:
                await socket.receive_text()

    code = _REAUTHORIZE
    try:
        if await until_left(follow, left):
            return
    except (TimeoutError, QuaestorError):
        code = _TRY_LATER
    with suppress(RuntimeError):  # the client has left meanwhile
        await socket.close(code)


async def texts(
    source: PageSource, watch: PageWatch, name: str, after: int
) -> AsyncIterator[tuple[str | None, int | None]]:
    """Yield the parts of pages after a number, each with the number of its page if it is the last part.

    (None, None) now and then while there is no page. Ends after an hour, and when the server stops. Raises as the source.
    """
    end = StreamEnd()
    async for head in watch.news(name, after):
        if end.is_reached:
            return
        if head is None:
            yield None, None
            continue
        first: int | None = 0
        while first is not None:
            text = await anyio.to_thread.run_sync(source.body, name, head.run, first)
            if text is None:
                return  # dropped meanwhile
            first = json.loads(text)["more"]
            yield text, None if first is not None else head.run


async def until_left(follow: Callable[[], Awaitable[None]], left: Callable[[], Awaitable[None]]) -> bool:
    """Follow until it ends, or the client has left; return whether the client has left. Raises what `follow` raises."""
    tasks = [asyncio.ensure_future(follow()), asyncio.ensure_future(left())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await ended(tasks)
    if tasks[1] in done:
        return True
    tasks[0].result()
    return False


def position_of(request: Request | WebSocket) -> int | None:
    """Return the position after which a client wants pages; None: it is no number. `Last-Event-ID` goes first."""
    text = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None
