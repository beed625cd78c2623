"""Forwarder, the innermost layer of the proxy: an ASGI app whose handler is the origin.

The forwarder runs inside the cache like any other app. If the origin declares its answer's queries, they go into the request's
recording like the reads of a driver. Their point in time is the watermark from before the origin was asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress

from quaestor.admin.problem_details import problem
from quaestor.admin.registered_urls import RegisteredUrls
from quaestor.capture import current, declared
from quaestor.errors import MalformedQueryError, StoreError
from quaestor.middleware.asked_scope import unrecorded
from quaestor.middleware.interface import Message, Receive, Scope, Send
from quaestor.model import CapturedRead, Uncacheable, Version
from quaestor.observability.telemetry import Telemetry
from quaestor.proxy import fields
from quaestor.proxy.connection import Interim, RequestBrokeOffError
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.origin import Answer, Origin, OriginBrokeOffError, OriginError
from quaestor.proxy.protocol import INTERIM
from quaestor.proxy.request_body import RequestBody, SlowBodyError, has_body
from quaestor.proxy.request_head import target_of
from quaestor.read_path.key import Target, target
from quaestor.tasks import client_left

DEPENDS = b"quaestor-depends"
"""Field by which an origin declares its answer's queries (see `quaestor.capture.declared`); it never leaves the proxy."""
UNREAD_S = 60.0
"""How long a client may leave an answer unread."""
FINISH_S = 10.0
"""How long an answer is still fetched after its client has left. Other clients may wait for it, and a write must be seen to its
end."""


Controls = Callable[[Target, Sequence[str]], Sequence[CapturedRead]]


class Forwarder:
    """Forwarder of one proxy process. close() closes its pool.

    watermark: the newest version that the grid has reported.
    urls: URLs whose queries were registered.
    controls: further dependencies of an answer with a declaration, so that it can be invalidated by its URL and its
        tags.
    """

    def __init__(
        self,
        options: ProxyOptions,
        telemetry: Telemetry,
        *,
        watermark: Callable[[], Version],
        urls: RegisteredUrls,
        controls: Controls = lambda target, tags: (),
    ) -> None:
        self._options = options
        self._telemetry = telemetry
        self._watermark = watermark
        self._urls = urls
        self._controls = controls
        self._origin = Origin(options)

    def close(self) -> None:
        """Close the connections to the origin."""
        self._origin.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        loop = asyncio.get_running_loop()
        client = _Client(receive, self._options, has_body=has_body(scope["headers"]))
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as patience:
                client.watch(lambda: patience.reschedule(loop.time() + FINISH_S))
                try:
                    await self._forward(scope, client, send)
                finally:
                    client.close()
            return None
        if not client.left:
            raise TimeoutError
        return None

    async def _forward(self, scope: Scope, client: _Client, send: Send) -> None:
        headers = self._headers(scope)
        head = scope["method"] == "HEAD"
        try:
            if client.body is not None:
                await client.body.read_ahead()
            since, asked_s = self._watermark(), time.monotonic()
            answer = await self._origin.ask(
                scope["method"], target_of(scope), headers, client.body, interim=_interim(scope)
            )
        except OriginError as error:
            self._telemetry.failure("origin", "proxy.origin_failed", error)
            status = [(b"proxy-status", b"quaestor; error=%s" % error.error.encode())]
            return await problem(send, error.status, error.detail, headers=status, head=head)
        except RequestBrokeOffError as error:
            if client.left:
                return None
            if isinstance(error, SlowBodyError):
                self._telemetry.requests.slow_bodies.labels(error.why).inc()
                self._telemetry.failure("client", "proxy.body_too_slow", error, why=error.why)
            return await problem(send, 408, "The body did not arrive in time.", close=True)
        try:
            await self._declare(scope, answer, since, (time.monotonic() - asked_s) * 1000)
            await self._hand_on(answer, send, bodyless=head or answer.status in (204, 304))
        finally:
            answer.close()
        return None

    def _headers(self, scope: Scope) -> fields.RawHeaders:
        """Fields that the origin receives. The cache has not seen the forwarding fields: an answer that varies by them is not
        stored.
        """
        # An origin decides about the conditions that it receives.
        for name, _ in scope["headers"]:
            if name == b"if-none-match":
                break
        scope = unrecorded(scope)
        headers = scope["headers"]
        client, host = scope.get("client"), next((value for name, value in headers if name == b"host"), b"")
        if self._options.host == "origin":
            headers = [(b"host", self._options.authority), *(field for field in headers if field[0] != b"host")]
        return fields.forwarded(headers, client=client[0] if client else None, scheme=scope["scheme"], host=host)

    async def _declare(self, scope: Scope, answer: Answer, since: Version, duration_ms: float) -> None:
        """Put the known queries of the answer into its recording. A declaration that cannot be understood forbids storing."""
        given = [value for name, value in answer.headers if name.lower() == DEPENDS]
        recorder = current()
        if recorder is None:
            return
        if any(
            field in value.lower()
            for name, value in answer.headers
            if name.lower() == b"vary"
            for field in fields.FORWARDED
        ):
            recorder.refuse(Uncacheable.DECLARED, "it varies by fields that name the forwarder of the request")
        named = _target(scope)
        try:
            if named is not None:
                given += await self._urls.find((named.key, named.resource))
            for text in given:
                declaration = declared.parse(text, database=self._options.database)
                controls = [] if named is None else self._controls(named, declaration.tags)
                declared.record(recorder, declaration, since=since, duration_ms=duration_ms, controls=controls)
        except (MalformedQueryError, UnicodeDecodeError) as error:
            self._telemetry.failure("origin", "proxy.declaration_malformed", error)
            recorder.refuse(Uncacheable.UNREADABLE, f"its declaration: {error}")
        except StoreError as error:
            self._telemetry.failure("store", "proxy.registrations_failed", error)
            recorder.refuse(Uncacheable.READ_FAILED, "it is not known which queries were registered for this URL")

    async def _hand_on(self, answer: Answer, send: Send, *, bodyless: bool) -> None:
        headers = fields.response_fields(answer.headers, status=answer.status, version=answer.version)
        headers = [(name, value) for name, value in headers if name != DEPENDS]
        await _pass_on(send, {"type": "http.response.start", "status": answer.status, "headers": headers})
        # One piece is held back: if it is the last, the server and the cache receive the body in one message.
        last: bytes | None = None
        if not bodyless:
            async with aclosing(answer.body()) as body:
                async for piece in body:
                    if last is not None:
                        await _pass_on(send, {"type": "http.response.body", "body": last, "more_body": True})
                    last = piece
        await _pass_on(send, {"type": "http.response.body", "body": last or b"", "more_body": False})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _pass_on(send: Send, message: Message) -> None:
    """Send one message. Raises OriginBrokeOffError for a client that does not read: it must not hold a connection to the
    origin."""
    try:
        async with asyncio.timeout(UNREAD_S):
            await send(message)
    except TimeoutError as error:
        raise OriginBrokeOffError(f"the client has read nothing for {UNREAD_S} s") from error


def _interim(scope: Scope) -> Interim:
    """Function that passes 102 and 103 on, if the server can."""
    send = (scope.get("extensions") or {}).get(INTERIM)

    def pass_on(status: int, headers: list[tuple[bytes, bytes]]) -> None:
        if send is not None:
            send(status, fields.interim_fields(headers))

    return pass_on


def _target(scope: Scope) -> Target | None:
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    path, _, query = target_of(scope).partition(b"?")
    return target(scope["scheme"], host, path, query)


class _Client:
    """Sender of one request: its body, and whether the client is still there."""

    def __init__(self, receive: Receive, options: ProxyOptions, *, has_body: bool) -> None:
        self._receive = receive
        self._watching: asyncio.Task[None] | None = None
        self._on_left: Callable[[], object] = lambda: None
        self._gone = False
        self.body = RequestBody(receive, options, on_end=self._watch) if has_body else None

    @property
    def left(self) -> bool:
        """Whether the client has gone away."""
        return self._gone or (self.body is not None and self.body.left)

    def watch(self, on_left: Callable[[], object]) -> None:
        """Call on_left when the client goes away. The watch starts at the end of the request, because before the client is
        sending.
        """
        self._on_left = on_left
        if self.body is None:
            self._watch()

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def _watch(self) -> None:
        self._watching = asyncio.create_task(self._wait_until_gone())

    async def _wait_until_gone(self) -> None:
        await client_left(self._receive)
        self._gone = True
        self._on_left()
