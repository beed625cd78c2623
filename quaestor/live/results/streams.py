"""Results of a subscription as they come: a stream of events (SSE), or a WebSocket. Both resume after a run."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.live.followers import Places
from quaestor.live.results.source import ResultSource
from quaestor.live.sse import HEADERS, HEARTBEAT, event, last_event_id
from quaestor.live.stream_ends import StreamEnd

_ROWS: Final = 500
_LOOK_S: Final = 1.0
"""Time after which a stream looks whether it has to end."""
_LOOKS_OF_HEARTBEAT: Final = 15
_AGAIN: Final = 1_012
_MOST_OF_CLIENT: Final = 1_000
_RUN: Final = re.compile(r"\d{1,18}", re.ASCII)


class ResultStream:
    """Streams of events: one event for each page of runs. Its id is the last run, so a browser resumes by itself.

    most: streams and sockets of this process.
    """

    def __init__(self, source: ResultSource, most: int) -> None:
        self._source = source
        self.places = Places(most=most, most_of_one=_MOST_OF_CLIENT)

    async def response(self, request: Request, channel: str, subscription: str, after: int) -> Response:
        """Return the stream of a subscription. Raises ConfigurationError for an unknown name."""
        resumed = last_event_id(request.scope["headers"]).decode("latin-1")
        if _RUN.fullmatch(resumed):
            after = int(resumed)
        client = request.client.host if request.client else ""
        if self.places.refusal(client):
            return JSONResponse({"error": "too many streams"}, status_code=503, headers={"retry-after": "5"})
        first = await _next(self._source, channel, subscription, after)
        give_back = self.places.take(client)
        fields = {name.decode(): value.decode() for name, value in HEADERS if name != b"content-type"}
        return StreamingResponse(
            self._events(channel, subscription, first, give_back),
            media_type="text/event-stream; charset=utf-8",
            headers=fields,
        )

    async def _events(
        self, channel: str, subscription: str, page: tuple[bytes, int], give_back: Callable[[], None]
    ) -> AsyncIterator[bytes]:
        try:
            async for news in _pages(self._source, channel, subscription, page):
                yield HEARTBEAT if news is None else event([news[0]], etag=str(news[1]).encode())
        except (ConfigurationError, DependencyError) as error:
            reason = "gone" if isinstance(error, ConfigurationError) else "failed"
            yield event([json.dumps({"reason": reason}).encode()], name=b"end")
        finally:
            give_back()


class ResultSocket:
    """WebSockets: each message from the server is a page of results. The client's messages are acknowledgements of nothing.

    ASGI application. The parameter `after` is the last run that the client has.
    """

    def __init__(self, source: ResultSource, places: Places) -> None:
        self._source = source
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket."""
        socket = WebSocket(scope, receive, send)
        channel, subscription = socket.path_params["channel"], socket.path_params["subscription"]
        text = socket.query_params.get("after", "0")
        client = socket.client.host if socket.client else ""
        if not _RUN.fullmatch(text) or self._places.refusal(client):
            await socket.close(1008)
            return
        give_back = self._places.take(client)
        try:
            await socket.accept()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_left, socket, tasks.cancel_scope)
                await self._send(socket, channel, subscription, int(text))
                tasks.cancel_scope.cancel()
        finally:
            give_back()

    async def _send(self, socket: WebSocket, channel: str, subscription: str, after: int) -> None:
        try:
            first = await _next(self._source, channel, subscription, after)
            async for news in _pages(self._source, channel, subscription, first):
                if news is not None:
                    await socket.send_text(news[0].decode())
            await socket.close(_AGAIN)
        except ConfigurationError:
            await socket.close(4404, "no such subscription")
        except DependencyError:
            await socket.close(1013, "the results cannot be read now")
        except (WebSocketDisconnect, RuntimeError):
            return  # the client has left

    async def _until_left(self, socket: WebSocket, scope: anyio.CancelScope) -> None:
        """Read messages until the client leaves, and end the socket then."""
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass
        scope.cancel()


async def _pages(
    source: ResultSource, channel: str, subscription: str, page: tuple[bytes, int]
) -> AsyncIterator[tuple[bytes, int] | None]:
    """Yield a page and those after it that have runs, each with its last run; None now and then while there is no run.

    Ends after an hour, and when the server stops.
    """
    is_first, end = True, StreamEnd()
    while not end.is_reached:
        body, upto = page
        fields: dict[str, Any] = json.loads(body)
        if is_first or fields["runs"]:
            yield page
        is_first = False
        looks = 0
        while fields["complete"] and not await source.wait(channel, upto, _LOOK_S):
            if end.is_reached:
                return
            looks += 1
            if looks % _LOOKS_OF_HEARTBEAT == 0:
                yield None
        page = await _next(source, channel, subscription, upto)


async def _next(source: ResultSource, channel: str, subscription: str, after: int) -> tuple[bytes, int]:
    """Return the page of results after a run, and its last run."""
    page = await anyio.to_thread.run_sync(lambda: source.for_subscription(channel, subscription, after, _ROWS, None))
    return page.body, page.upto
