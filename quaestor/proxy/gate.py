"""The outermost layer of the proxy: what may come in, as what it goes on, and the form in which answers leave.

Everything that decides how a request is understood is settled here, before the cache: cache and origin see the same fields,
so nobody can make the cache key on something that the origin never saw. What is ambiguous is refused and not repaired (RFC 9112,
section 11.2).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from quaestor.proxy import fields
from quaestor.proxy.answers import problem
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.origin import OriginBrokeOffError
from quaestor.proxy.protocol import TARGET
from quaestor.telemetry import Telemetry

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_FIELDS = 200
HTTP_1_0_BYTES = 16 * 1024 * 1024
"""Answers of unknown length are collected for HTTP/1.0 clients, which know no chunks, up to this size."""
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.\-]{1,253})(?::[0-9]{1,5})?")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_OURS = frozenset({b"expect", b"quaestor-depends"})
"""Fields of requests that go no further: the server has answered the first, the second is for origins to send."""
_ALLOWED = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, QUERY"


class Refusal(NamedTuple):
    status: int
    detail: str
    close: bool = True


class Gate:
    """Wraps the cache, which wraps the forwarder."""

    def __init__(self, app: App, options: ProxyOptions, telemetry: Telemetry) -> None:
        self._app = app
        self._options = options
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1003})
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        outgoing = Outgoing(send, buffered=scope["http_version"] == "1.0" and scope["method"] != "HEAD")
        refusal = refuse(scope, self._options.hosts)
        if refusal is not None:
            return await problem(
                outgoing.send, refusal.status, refusal.detail, head=scope["method"] == "HEAD", close=refusal.close
            )
        scope = self._cleaned(scope)
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
            # Otherwise: returning without the end of the body makes the server close the connection, which is how the
            # client learns that this is not all.
        return None

    def _cleaned(self, scope: Scope) -> Scope:
        headers = fields.without_connection([(name, value.strip(b" \t")) for name, value in scope["headers"]])
        if not self._options.trust_forwarded:
            headers = fields.unforwarded(headers)
        headers = fields.via([field for field in headers if field[0] not in _OURS], version=scope["http_version"])
        if not any(name == b"host" for name, _ in headers):
            headers.insert(0, (b"host", self._options.authority))
        return {**scope, "headers": headers}


class Outgoing:
    """A server's `send` that dates what has no date, and collects answers of unknown length if it has to."""

    def __init__(self, send: Send, *, buffered: bool) -> None:
        self._send = send
        self._buffered = buffered
        self._held: Message | None = None
        self._body = bytearray()
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name for name, _ in headers}
            if b"date" not in names:
                headers.append((b"date", fields.http_date()))
            message = {**message, "headers": headers}
            if self._buffered and b"content-length" not in names and message["status"] not in (204, 304):
                self._held = message
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


def refuse(scope: Scope, hosts: frozenset[str]) -> Refusal | None:
    """Why this request is not sent on, or None."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    if len(headers) > MAX_FIELDS:
        return Refusal(431, f"More than {MAX_FIELDS} header fields.")
    of: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if fields.CONTROLS.search(value):
            return Refusal(400, "A control character in a header field.")
        of.setdefault(name, []).append(value.strip(b" \t"))
    return (
        _method(scope["method"])
        or _host(of.get(b"host", []), scope["http_version"], hosts)
        or _framing(of.get(b"content-length", []), of.get(b"transfer-encoding", []), scope["http_version"])
        or _the_rest(of)
    )


def _method(method: str) -> Refusal | None:
    if method == "CONNECT":
        return Refusal(501, "This is no tunnel.")
    if method == "TRACE":
        return Refusal(405, "TRACE would show what other parties added to the request.")
    return None


def _host(given: list[bytes], version: str, hosts: frozenset[str]) -> Refusal | None:
    if len(given) > 1:
        return Refusal(400, "More than one Host field.")
    if not given:
        return None if version == "1.0" and not hosts else Refusal(400, "A request without a Host field.")
    if _HOST.fullmatch(given[0]) is None:
        return Refusal(400, "The Host field is not host or host:port.")
    if hosts and re.sub(r":[0-9]+$", "", given[0].decode("ascii")).lower() not in hosts:
        return Refusal(421, "This host is not served here.", close=False)
    return None


def _framing(lengths: list[bytes], codings: list[bytes], version: str) -> Refusal | None:
    """RFC 9112, section 6.3: one way to say how long a message is."""
    if codings and lengths:
        return Refusal(400, "Content-Length beside Transfer-Encoding.")
    if codings and version == "1.0":
        return Refusal(400, "Transfer-Encoding in an HTTP/1.0 request.")
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
        return Refusal(501, "The only transfer coding here is chunked.")
    if len(lengths) > 1 or (lengths and _DIGITS.fullmatch(lengths[0]) is None):
        return Refusal(400, "Content-Length is not one number.")
    return None


def _the_rest(of: dict[bytes, list[bytes]]) -> Refusal | None:
    if any(value.lower() != b"100-continue" for value in of.get(b"expect", ())):
        return Refusal(417, "The only expectation here is 100-continue.")
    if fields.hops((b"via", value) for value in of.get(b"via", ())) >= fields.MAX_HOPS:
        return Refusal(508, "This request has come through here several times.")
    return None


def _ends_here(scope: Scope) -> bool:
    """Max-Forwards (RFC 9110, section 7.6.2): an OPTIONS that is not to go any further; otherwise one hop less is left."""
    if scope["method"] != "OPTIONS":
        return False
    for at, (name, value) in enumerate(scope["headers"]):
        if name == b"max-forwards" and _DIGITS.fullmatch(value):
            left = int(value)
            if left == 0:
                return True
            scope["headers"][at] = (name, b"%d" % (left - 1))
    return False


def target_of(scope: Scope) -> bytes:
    """The request target to ask the origin for, as it was received."""
    exact: bytes | None = (scope.get("extensions") or {}).get(TARGET)
    if exact is not None:
        return exact
    path: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "replace")
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path
