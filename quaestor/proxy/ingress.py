"""Ingress, the outermost layer of the proxy: the requests that may come in, their form inside, and the form of the answers.

Every decision about the meaning of a request is made here, before the cache. Cache and origin therefore see the same fields, and
no client can make the cache use a key from fields that the origin never saw. Ambiguous requests are refused and not repaired
(RFC 9112, section 11.2).
"""

from __future__ import annotations

import re

from quaestor.admin.problem_details import problem
from quaestor.middleware.interface import App, Message, Receive, Scope, Send
from quaestor.observability.event_log import EventLog
from quaestor.proxy import fields
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.origin import OriginBrokeOffError
from quaestor.proxy.request_head import RequestHead, target_of

HTTP_1_0_BYTES = 16 * 1024 * 1024
"""Most bytes of an answer of unknown length that are collected for HTTP/1.0 clients, which do not know chunks."""
_DIGITS = re.compile(rb"[0-9]{1,18}")
_ALLOWED = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, QUERY"


class Ingress:
    """Ingress of the proxy: wraps the cache, which wraps the forwarder."""

    def __init__(self, app: App, options: ProxyOptions, telemetry: EventLog) -> None:
        self._app = app
        self._options = options
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1003})
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        outgoing = Outgoing(send, buffered=scope["http_version"] == "1.0" and scope["method"] != "HEAD")
        head = RequestHead(scope["headers"], trust=self._options.trust_forwarded)
        refusal = head.refusal(scope["method"], scope["http_version"], self._options.hosts)
        if refusal is not None:
            return await problem(
                outgoing.send, refusal.status, refusal.detail, head=scope["method"] == "HEAD", close=refusal.close
            )
        scope = {**scope, "headers": head.cleaned(scope["http_version"], authority=self._options.authority)}
        if scope["method"] in ("GET", "HEAD") and not scope["query_string"] and target_of(scope).endswith(b"?"):
            scope["raw_path"] += b"?"  # the origin sees it, so the cache has to
        if _ends_here(scope):
            headers = [(b"allow", _ALLOWED), (b"content-length", b"0")]
            await outgoing.send({"type": "http.response.start", "status": 200, "headers": headers})
            return await outgoing.send({"type": "http.response.body", "body": b""})
        try:
            return await self._app(scope, receive, outgoing.send)
        except OriginBrokeOffError as error:
            self._telemetry.failure("origin", "proxy.origin_broke_off", error)
            if not outgoing.started:
                await problem(outgoing.send, 502, "The origin's answer broke off.", head=scope["method"] == "HEAD")
            # Otherwise the function returns without the end of the body. The server then closes the connection, and the client
            # learns that the answer is incomplete.
        return None


class Outgoing:
    """Outgoing side: a server's `send` that adds a missing date, and collects answers of unknown length if it must."""

    def __init__(self, send: Send, *, buffered: bool) -> None:
        self._send = send
        self._buffered = buffered
        self._held: Message | None = None
        self._body = bytearray()
        self.started = False

    async def send(self, message: Message) -> None:
        """Send a message in the form in which answers leave."""
        if message["type"] == "http.response.start":
            headers = message["headers"]
            for name, _ in headers:
                if name == b"date":
                    break
            else:
                headers = message["headers"] = [*headers, (b"date", fields.http_date())]
            if self._buffered and not _sized(message):
                self._held = {**message, "headers": list(headers)}
                return None
            self.started = True
        elif self._held is not None and message["type"] == "http.response.body":
            return await self._collect(message)
        return await self._send(message)

    async def _collect(self, message: Message) -> None:
        assert self._held is not None
        self._body += message.get("body", b"")
        if len(self._body) > HTTP_1_0_BYTES:
            raise OriginBrokeOffError("an answer of unknown length is too large for an HTTP/1.0 client")
        if message.get("more_body", False):
            return
        start, self._held, self.started = self._held, None, True
        start["headers"].append((b"content-length", b"%d" % len(self._body)))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": bytes(self._body)})


def _sized(start: Message) -> bool:
    """Whether the length of an answer is known from its head."""
    return start["status"] in (204, 304) or any(name == b"content-length" for name, _ in start["headers"])


def _ends_here(scope: Scope) -> bool:
    """Whether an OPTIONS request must stop here by Max-Forwards (RFC 9110, section 7.6.2); otherwise one hop less is left."""
    if scope["method"] != "OPTIONS":
        return False
    for at, (name, value) in enumerate(scope["headers"]):
        if name == b"max-forwards" and _DIGITS.fullmatch(value):
            left = int(value)
            if left == 0:
                return True
            scope["headers"][at] = (name, b"%d" % (left - 1))
    return False
