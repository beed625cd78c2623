"""Streams of one app: the answer to `new EventSource(url)`, from its first event to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import copy_context
from typing import Any

from quaestor.live import json_patches, sse
from quaestor.live.answers import FollowedAnswer, Scope
from quaestor.live.followed_routes import FollowedRoutes
from quaestor.live.followers import End, Follower
from quaestor.live.following import Following
from quaestor.live.prompt_sends import BegunSend, begin, within
from quaestor.policy import Live
from quaestor.tasks import client_left

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Stream:
    """One stream of events. run() is called once.

    plain: scope of a plain GET for the same URL, with which the answers are read.
    live: how the route is followed.
    """

    def __init__(
        self, routes: FollowedRoutes, scope: Scope, receive: Receive, send: Send, *, plain: Scope, live: Live
    ) -> None:
        self._routes = routes
        self._metrics = routes.telemetry.followers
        self._scope = scope
        self._receive = receive
        self._send = send
        self._live = live
        self._follower = Follower(plain)
        self._following: Following | None = None
        self._alone = False
        self._patches = live.patch or sse.wants_patches(scope["headers"])
        self._known = sse.last_event_id(scope["headers"])
        self._sent: FollowedAnswer | None = None
        self._began = False
        self._rest: BegunSend | Exception | None = None
        self._until_s = None if live.valid_until is None else live.valid_until(scope)

    async def run(self) -> None:
        """Serve the stream until the client leaves, or it ends."""
        async with self._routes.place(self._scope) as refused:
            if refused:
                return await refuse(self._send, refused, self._routes.reconnect_ms())
            gone = self._routes.errands.start(self._left())
            try:
                await self._serve()
            finally:
                gone.cancel()
                self._follower.at_once = None  # it refers back to the stream
                self._unfollow()
                end = self._follower.ended
                self._metrics.ended.labels("left" if end is None else end.reason).inc()

    async def _left(self) -> None:
        """Wait until the client has left."""
        await client_left(self._receive)
        self._follower.end(End("left"))

    async def _serve(self) -> None:
        self._follow()
        while self._follower.ended is None:
            answer = await self._follower.news(within_s=self._pause_s())
            woken = answer is None and self._rest is not None
            await self._complete()
            if self._expired():
                self._follower.end(End("expired"))
            elif self._follower.ended is None and not woken and self._still_named():
                await self._deliver(answer)
            if self._follower.ended is not None and self._polls_alone(self._follower.ended):
                self._alone = True
                self._follower.ended = None
                self._follow()
        await self._finish(self._follower.ended)

    def _follow(self) -> None:
        """Join the followers of the request's present answer, or end if the client may not ask for it."""
        self._unfollow()
        named = self._routes.reader.named(self._follower.scope)
        if named.live is None:
            return self._follower.end(End("unfollowable"))
        self._following = self._routes.follow(self._follower, named, alone=self._alone)
        return None

    def _unfollow(self) -> None:
        if self._following is not None:
            self._routes.leave(self._follower, self._following)
            self._following = None

    def _still_named(self) -> bool:
        """Whether the client's credentials still lead to this answer. If they lead to another one, that one is followed from now
        on, and this one is not sent."""
        named = self._routes.reader.named(self._follower.scope)
        assert self._following is not None
        if (named.key or "") == self._following.key:
            return True
        if named.reason == "scope":
            self._follower.end(End("unauthorized"))
        else:
            self._follow()
        return False

    def _polls_alone(self, end: End) -> bool:
        """Whether a stream goes on by polling, because its answers cannot be stored."""
        stored = end.answer is None and end.reason not in (
            "left",
            "stopping",
            "expired",
            "unauthorized",
            "slow",
            "failed",
        )
        return stored and self._live.poll is not None and not self._alone

    def _pause_s(self) -> float:
        beat_s = self._routes.settings.live_heartbeat_ms / 1000
        return beat_s if self._until_s is None else max(0.0, min(beat_s, self._until_s - time.time()))

    def _expired(self) -> bool:
        return self._until_s is not None and time.time() >= self._until_s

    async def _deliver(self, answer: FollowedAnswer | None) -> None:
        if answer is None:
            return await self._write(sse.HEARTBEAT) if self._began else None
        if not self._began:
            await self._begin()
        if answer.etag == self._known:
            if self._sent is None:
                await self._write(sse.UNCHANGED)
            self._sent = answer
            return None
        event, kind = await self._event(answer)
        self._count(answer, kind)
        await self._write(event)
        return None

    def _deliver_at_once(self, answer: FollowedAnswer) -> bool:
        """Send an answer from the task that offers it, while the stream's own task waits. The rights are checked as always.

        False: the stream's own task has to handle the answer. A send that waits for the client goes on there too.
        """
        following, follower = self._following, self._follower
        if following is None or follower.ended is not None or self._expired():
            return False
        try:
            if (self._routes.reader.named(follower.scope).key or "") != following.key:
                return False
            if answer.etag != self._known:
                event, kind = following.encodings.event(answer, sse.whole)
                self._count(answer, kind)
                self._rest = begin(self._send(_piece(event)))
        except Exception as error:  # other followers go on; the stream's own task raises it
            self._rest = error
        self._sent = answer
        if self._rest is None:
            follower.wait_on(self._pause_s())
        else:
            follower.wake()
        return True

    async def _complete(self) -> None:
        """Complete a send that began in another task. Raises what it raised there."""
        rest, self._rest = self._rest, None
        if isinstance(rest, Exception):
            raise rest
        if rest is not None:
            await self._within_limit(rest)

    def _count(self, answer: FollowedAnswer, kind: str) -> None:
        self._sent, self._known = answer, answer.etag
        self._metrics.events.labels(kind).inc()

    async def _event(self, answer: FollowedAnswer) -> tuple[bytes, str]:
        assert self._following is not None
        if self._patches and self._sent is not None:
            patch = await self._following.encodings.patch(self._sent, answer, self._begin_patch)
            if patch is not None:
                return sse.patched(patch, answer.etag), "patch"
        return self._following.encodings.event(answer, sse.whole)

    def _begin_patch(self, old: FollowedAnswer, new: FollowedAnswer) -> asyncio.Future[bytes | None]:
        return self._routes.errands.start(json_patches.patch(old, new))

    async def _begin(self) -> None:
        self._began = True
        await self._send({"type": "http.response.start", "status": 200, "headers": list(sse.HEADERS)})
        await self._write(sse.retry(self._routes.reconnect_ms()))
        if not self._patches:  # a patch is computed in another thread
            context = copy_context()  # of the request, as its own functions need it
            self._follower.at_once = lambda answer: context.run(self._deliver_at_once, answer)

    async def _write(self, data: bytes) -> None:
        """Send a piece."""
        await self._within_limit(self._send(_piece(data)))

    async def _within_limit(self, sending: Awaitable[None]) -> None:
        """Await a send. A client that does not read for too long loses its stream."""
        try:
            await within(sending, self._routes.settings.live_send_timeout_ms / 1000)
        except TimeoutError:
            self._follower.end(End("slow"))

    async def _finish(self, end: End) -> None:
        """Send the client the reason for the stream's end."""
        if end.reason == "left":
            return None
        refused = end.answer
        if not self._began and refused is not None:
            return await pass_on(self._send, refused)
        if not self._began and end.reason == "unauthorized":
            return await refuse(self._send, end.reason, self._routes.reconnect_ms())
        if not self._began:
            await self._begin()
        if end.reason == "stopping":
            await self._write(sse.retry(self._routes.reconnect_ms()))
        elif end.reason != "slow":
            await self._write(sse.end(end.reason, 0 if refused is None else refused.status))
        if self._follower.ended is end and end.reason != "slow":
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        return None


def _piece(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def pass_on(send: Send, answer: FollowedAnswer) -> None:
    """Pass on the handler's answer to a client that it refuses."""
    kept = [
        (name, value) for name, value in answer.headers if name.lower() not in (b"cache-control", b"content-length")
    ]
    headers = [*kept, (b"cache-control", b"no-store"), (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


_REFUSALS = {
    "client": (429, "too many streams and long polls of this client"),
    "process": (503, "this process has no place for another stream or long poll"),
    "stopping": (503, "this process stops"),
    "unauthorized": (403, "the credentials do not say for whom the answer is"),
    "not-live": (406, "this URL cannot be followed: declare its route with @cached(live=True)"),
    "head": (406, "a stream of events has no HEAD: use GET"),
}


async def refuse(send: Send, why: str, retry_ms: int = 0) -> None:
    """Answer that there is no stream, with the reason.

    retry_ms: time after which another attempt makes sense; 0: never.
    """
    status, sentence = _REFUSALS[why]
    body = sentence.encode() + b"\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"vary", b"accept"),
    ]
    if status in (429, 503):
        headers.append((b"retry-after", b"%d" % max(1, retry_ms // 1000)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body if why != "head" else b""})
