"""Live queries as an HTTP resource: one URL for each query, position and kind of answer."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quaestor.caching import cached
from quaestor.live import sse
from quaestor.live.followers import Places
from quaestor.live.websocket.connection import SocketClosedError, SocketContext
from quaestor.live.websocket.forms import EXTENDED_JSON, RecordForm
from quaestor.live.websocket.group import QueryGroup
from quaestor.live.websocket.http import answers
from quaestor.live.websocket.http.answers import Chunks
from quaestor.live.websocket.http.event_streams import EventStream
from quaestor.live.websocket.http.parameters import LiveRequest, parse_live
from quaestor.live.websocket.http.polls import Poll, slot
from quaestor.live.websocket.positions import Position
from quaestor.live.websocket.principals import granted
from quaestor.live.websocket.problems import ProtocolError
from quaestor.live.websocket.queries import wanted_result
from quaestor.query import aggregation
from quaestor.rest.rights import Rights
from quaestor.tasks import client_left

_REACH_S: Final = 1.0
"""Time in which this process reaches a position that another one has shown to the client."""
_LOOK_EVERY_S: Final = 0.002
_REFUSALS: Final = {
    "client": (429, "too many requests for live queries from this address; wait for some to end"),
    "process": (503, "too many requests for live queries; try again later"),
}


class Sockets(Protocol):
    """Part of an endpoint that its HTTP resource needs."""

    @property
    def places(self) -> Places:
        """Places of sockets and requests."""

    @property
    def wait_ms(self) -> int:
        """The longest wait of a long poll."""

    @property
    def heartbeat_s(self) -> float:
        """Time between two signs of life of a stream."""

    def shared(self) -> SocketContext:
        """Parts of this event loop."""

    async def serve(self, scope: Scope, receive: Receive, send: Send, *, form: RecordForm) -> SocketClosedError | None:
        """Serve one connection with the messages of a socket. Returns why the endpoint has ended it."""


@cached(bypass=True)
class LiveResource:
    """ASGI application that answers `GET {path}/{bucket}`."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._chunks = Chunks()
        self._polls: set[Poll] = set()
        self._streams: set[EventStream] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        address = request.client.host if request.client else ""
        refusal = self._sockets.places.refusal(address)
        context = self._sockets.shared()
        if refusal:
            context.metrics.http.labels("refused").inc()
            await answers.problem(ProtocolError(*_REFUSALS[refusal]))(scope, receive, send)
            return
        give_back = self._sockets.places.take(address)
        try:
            if scope["method"] == "GET" and sse.wants_stream(scope["headers"]):
                await self._stream(request, send, context)
                return
            response = await self._response(request, context)
        finally:
            give_back()
        if response is not None:
            await response(scope, receive, send)

    def end_all(self) -> None:
        """End all long polls and streams: the service stops."""
        for poll in self._polls:
            poll.fail(ProtocolError(503, "the service stops; ask again, and another process will answer"))
        for stream in self._streams:
            stream.leave()

    async def _stream(self, request: Request, send: Send, context: SocketContext) -> None:
        """Serve a stream of events until the client leaves, or the subscription ends."""
        try:
            asked = parse_live(request, request.path_params["bucket"], context.limits)
        except Exception as error:
            context.metrics.http.labels("refused").inc()
            return await answers.problem(error)(request.scope, request.receive, send)
        context.metrics.http.labels("stream").inc()
        stream = EventStream(request, asked, send, heartbeat_s=self._sockets.heartbeat_s)
        gone = context.groups.start(stream.watch())
        self._streams.add(stream)
        try:
            await self._sockets.serve(request.scope, stream.receive, stream.send, form=EXTENDED_JSON)
        finally:
            self._streams.discard(stream)
            gone.cancel()
        return await stream.finish()

    async def _response(self, request: Request, context: SocketContext) -> Response | None:
        """The answer; None: the client has left."""
        try:
            return await self._answer(request, context)
        except Exception as error:
            response = answers.problem(error)
            if response.status_code >= 500 and not isinstance(error, ProtocolError | HTTPException):
                context.groups.failed(error)
            context.metrics.http.labels("refused").inc()
            return response

    async def _answer(self, request: Request, context: SocketContext) -> Response | None:
        live_request = parse_live(request, request.path_params["bucket"], context.limits)
        group = await self._group(request, live_request, context)
        public = self._is_public(request, group, context)
        await _reached(group, live_request)
        position, epoch = live_request.position, group.position.epoch
        if position is None:
            if live_request.epoch not in (None, epoch):
                return self._gone(live_request, group, context)
            context.metrics.http.labels("snapshot").inc()
            return answers.answered(request, *answers.snapshot(live_request, group, public=public))
        await group.look_back(position.token)
        cursor = None
        if live_request.live and position == group.position:
            poll = Poll()
            cursor = await self._wait(request, live_request, group, poll, context)
            if poll.problem is not None:
                raise poll.problem
            if poll.left:
                return None
            permitted = group if public else await self._group(request, live_request, context)
            if permitted is not group:
                return self._gone(live_request, permitted, context)
        changes = self._chunks.behind(group, position)
        if changes is None:
            return self._gone(live_request, group, context)
        if position == group.position:
            context.metrics.http.labels("unchanged").inc()
            return answers.answered(request, *answers.no_news(live_request, group, public=public, cursor=cursor))
        context.metrics.http.labels("changes").inc()
        return answers.answered(request, *self._chunks.answer(live_request, group, changes, public=public))

    @staticmethod
    def _gone(live_request: LiveRequest, group: QueryGroup, context: SocketContext) -> Response:
        context.metrics.http.labels("gone").inc()
        return answers.gone(live_request, group)

    @staticmethod
    async def _group(request: Request, live_request: LiveRequest, context: SocketContext) -> QueryGroup:
        """The group of the query with the present rights of the client."""
        grant = await granted(context.who, request.scope, None, clock=context.clock)
        rights = Rights(context.access, grant.principal)
        wanted = wanted_result(live_request.message, database=context.database, rights=rights, limits=context.limits)
        return await context.groups.of(wanted)

    @staticmethod
    def _is_public(request: Request, group: QueryGroup, context: SocketContext) -> bool:
        """Whether shared caches may keep the answer. A gateway in front may have judged an `Authorization` unknown here."""
        if "authorization" in request.headers and context.who is None:
            return False
        stages = group.wanted.query.pipeline or ()
        read = {name.partition(".")[2] for name in aggregation.foreign_namespaces(stages, context.database)}
        return answers.is_public(context.access, {group.bucket, *read}, anonymous=context.who is None)

    async def _wait(
        self, request: Request, live_request: LiveRequest, group: QueryGroup, poll: Poll, context: SocketContext
    ) -> int:
        """Wait for a change. Return the cursor of the next poll if there is none."""
        now_ms = context.clock()
        ends_ms, cursor = slot(now_ms, wait_ms=self._sockets.wait_ms, cursor=live_request.cursor)
        gone = context.groups.start(_left(request, poll))
        group.join(poll)
        self._polls.add(poll)
        context.metrics.polls.set(len(self._polls))
        try:
            await poll.wait((ends_ms - now_ms) / 1_000)
        finally:
            gone.cancel()
            group.leave(poll)
            self._polls.discard(poll)
            context.metrics.polls.set(len(self._polls))
        return cursor


async def _left(request: Request, poll: Poll) -> None:
    """Wait until the client has left."""
    await client_left(request.receive)
    poll.leave()


async def _reached(group: QueryGroup, live_request: LiveRequest) -> None:
    """Wait until this process has the position of the client, which another process may have shown. At most a second."""
    if live_request.epoch is None:
        return
    wanted = (live_request.epoch, live_request.offset or 0)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + _REACH_S
    while _place(group.position) < wanted and group.failed is None and loop.time() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_EVERY_S)


def _place(position: Position) -> tuple[str, int]:
    return position.epoch, position.sequence
