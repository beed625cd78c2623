"""Long polls: a conditional GET with `Prefer: wait=25` (RFC 7240) waits for a change, or until the time is over."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from quaestor.live.answers import Scope
from quaestor.live.followed_routes import FollowedRoutes
from quaestor.live.followers import End, Follower
from quaestor.live.streams import Message, Receive
from quaestor.read_path.validation import none_match_fails

_WAIT = re.compile(rb'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,5})"?\s*(?=$|[,;])', re.IGNORECASE)


def wait_s(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Seconds that a request is ready to wait; 0: none."""
    matches = (_WAIT.search(value) for name, value in headers if name == b"prefer")
    return next((int(match[1]) for match in matches if match is not None), 0)


class LongPoll:
    """Long poll, which holds a request back. The middleware answers the request as any other GET afterwards.

    plain: scope of the GET without its condition.
    left: whether the client has gone.
    """

    def __init__(self, routes: FollowedRoutes, scope: Scope, receive: Receive, *, plain: Scope) -> None:
        self.left = False
        self._routes = routes
        self._scope = scope
        self._receive = receive
        self._plain = plain
        self._messages: list[Message] = []

    async def hold(self, if_none_match: bytes, wait_s: int) -> str:
        """Wait until the client's condition fails, or until the time is over. Returns why there is no place to wait, or an empty
        text."""
        async with self._routes.place(self._scope) as refused:
            if refused:
                return refused
            follower = Follower(self._plain)
            named = self._routes.reader.named(self._plain)
            if named.key is None:
                return ""  # answered at once: its change cannot be known
            following = self._routes.follow(follower, named)
            gone = self._routes.errands.start(self._watch(follower))
            try:
                await self._wait(follower, if_none_match, wait_s)
            finally:
                gone.cancel()
                self._routes.leave(follower, following)
                self._routes.telemetry.followers.ended.labels("left" if self.left else "answered").inc()
        return ""

    async def _wait(self, follower: Follower, if_none_match: bytes, wait_s: int) -> None:
        until_s = time.monotonic() + min(wait_s, self._routes.settings.live_wait_ms / 1000)
        while follower.ended is None and (left_s := until_s - time.monotonic()) > 0:
            answer = await follower.news(within_s=left_s)
            if answer is not None and not none_match_fails(if_none_match, answer.etag):
                return

    async def _watch(self, follower: Follower) -> None:
        """Notice that the client leaves. Other messages are kept for the handler."""
        while True:
            message = await self._receive()
            self._messages.append(message)
            if message["type"] == "http.disconnect":
                self.left = True
                return follower.end(End("left"))

    async def receive(self) -> Message:
        """ASGI's `receive`, from the beginning."""
        return self._messages.pop(0) if self._messages else await self._receive()
