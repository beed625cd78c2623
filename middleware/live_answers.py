"""Live answers: the requests of a live route that ask for a stream of events, or that wait for a change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from quaestor.first_use import FirstUse
from quaestor.live import sse
from quaestor.live.answers import Named
from quaestor.middleware.followed_reads import FollowedReads, Reading, as_plain_get
from quaestor.middleware.interface import Engine, Message, Receive, Scope, Send
from quaestor.policy import Live
from quaestor.read_path.request import KNOWN, RequestFacts

if TYPE_CHECKING:
    from quaestor.live import followed_routes, long_poll, streams
    from quaestor.live.followed_routes import FollowedRoutes
else:
    followed_routes = FirstUse("quaestor.live.followed_routes")
    long_poll = FirstUse("quaestor.live.long_poll")
    streams = FirstUse("quaestor.live.streams")

Answer = Callable[[Scope, Receive, Send], Awaitable[None]]
_HELD = "quaestor.held"
"""In the scope of a long poll that has waited, so that it is answered as any other GET."""


class LiveAnswers:
    """The followers of one app.

    name, ask: see FollowedReads.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        name: Callable[[Scope], Named],
        ask: Callable[[Scope, Reading], Awaitable[None]],
        answer: Answer,
    ) -> None:
        self._engine = engine
        self._reads = FollowedReads(engine.read_path, name=name, ask=ask)
        self._answer = answer
        self._made: FollowedRoutes | None = None

    @property
    def _routes(self) -> FollowedRoutes:
        """Followed routes, made for the first follower: few applications have live routes."""
        if self._made is None:
            read_path, telemetry = self._engine.read_path, self._engine.telemetry
            made = followed_routes.FollowedRoutes(
                self._reads, watches=read_path.lookup.watches, process=read_path.process
            )
            telemetry.followers.followers.set_function(lambda: made.counts()[0])
            telemetry.followers.answers.set_function(lambda: made.counts()[1])
            self._made = made
        return self._made

    async def serves(self, scope: Scope, receive: Receive, send: Send, *, facts: RequestFacts, live: Live) -> bool:
        """Serve a request that follows. False: it is a plain request."""
        headers = scope["headers"]
        if sse.wants_stream(headers):
            if scope["method"] == "HEAD":
                await streams.refuse(send, "head")
            else:
                plain = as_plain_get(scope, stream=True)
                await streams.Stream(self._routes, scope, receive, send, plain=plain, live=live).run()
            return True
        seconds = long_poll.wait_s(headers)
        if not seconds or scope["method"] != "GET" or _HELD in scope:
            return False
        known = next((value for name, value in headers if name == KNOWN), facts.if_none_match)
        if known is None:
            return False
        await self._hold(scope, receive, send, if_none_match=known, seconds=seconds)
        return True

    async def _hold(self, scope: Scope, receive: Receive, send: Send, *, if_none_match: bytes, seconds: int) -> None:
        """Answer a long poll."""
        poll = long_poll.LongPoll(self._routes, scope, receive, plain=as_plain_get(scope, stream=False))
        refused = await poll.hold(if_none_match, seconds)
        if refused:
            return await streams.refuse(send, refused, self._routes.reconnect_ms())
        if poll.left:
            return None

        async def applied(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"preference-applied", b"wait=%d" % seconds)]
            await send(message)

        headers = [(name, value) for name, value in scope["headers"] if name not in (b"prefer", KNOWN)]
        await self._answer({**scope, "headers": headers, _HELD: True}, poll.receive, applied)
        return None

    async def stop(self) -> None:
        """End all streams and long polls."""
        if self._made is not None:
            await self._made.stop()
        await self._reads.stop()


def refusing_streams(scope: Scope, send: Send) -> Send:
    """The `send` of a route that is not live. A client that accepts only a stream of events receives 406, unless the handler
    streams events itself."""
    if scope["method"] != "GET" or not sse.wants_nothing_else(scope["headers"]):
        return send
    refused = False

    async def refusing(message: Message) -> None:
        nonlocal refused
        if message["type"] == "http.response.start" and message["status"] == 200:
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            refused = not any(kind.lower().startswith(sse.MEDIA_TYPE) for kind in kinds)
            if refused:
                return await streams.refuse(send, "not-live")
        if not refused:
            await send(message)
        return None

    return refusing
