"""HTTP/1.1 protocol as a proxy has to read it: uvicorn's protocol on httptools, with additions.

- The request target is kept exactly as it was received (`scope["extensions"]["quaestor.target"]`). That holds in every form of
  RFC 9112, section 3.2, and for a `?` without a query.
- The authority of an absolute-form target takes the place of the Host field (section 3.2.2).
- The size of a head is bounded, and so is the time that it may take (slow senders hold a socket, not memory).
- An answer to a request whose body is incomplete reaches its client, though the connection is closed afterwards. If the socket
were
  closed at once, further bytes of the client would cause a reset, which takes the answer away (RFC 9112, section 9.6).
- Methods that the parser does not know are accepted, unless the request is pipelined behind another one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from quaestor.proxy.request_body import has_body

TARGET = "quaestor.target"
INTERIM = "quaestor.interim"
"""Name in the scope of a function (status, header fields) that sends an interim answer."""
MAX_HEAD_BYTES = 96 * 1024
HEAD_TIMEOUT_S = 30.0
LINGER_S = 1.0

_PARSED = tuple(
    b"%s " % method
    for method in (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"CONNECT", b"TRACE", b"PRI")
)
_METHOD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}) ")
_INTERIM_PHRASES = {102: b"Processing", 103: b"Early Hints"}
_REFUSALS = {
    408: b"HTTP/1.1 408 Request Timeout\r\n",
    431: b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
}


class ProxyProtocol(HttpToolsProtocol):
    """Protocol of one connection from a client. Give it to uvicorn as `http=ProxyProtocol`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reading_head = True
        self._head_bytes = 0
        self._fields_bytes = 0
        self._refused = False
        self._method: str | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol. The time for the first head begins."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. Bounds the size of a head and the time that it takes."""
        if self._refused:
            return
        if self._reading_head:
            if not self._head_bytes:
                data = self._with_known_method(data)
            self._head_bytes += len(data)
            if self._patience is None:
                self._wait()
        super().data_received(data)
        # A head that goes on beyond this chunk; a complete head was counted by its fields.
        if self._reading_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431)

    def on_message_begin(self) -> None:
        """Callback of the parser: a request begins."""
        super().on_message_begin()
        self._reading_head = True
        self._fields_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Callback of the parser: a header field, counted."""
        self._fields_bytes += len(name) + len(value) + 4
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Callback of the parser: the head is complete. A head that is too large or has no clear target is refused."""
        self._reading_head = False
        self._head_bytes = 0
        self._stop_waiting()
        if len(self.url) + self._fields_bytes > MAX_HEAD_BYTES:
            self._refuse(431)
            raise _RefusedError
        exact, authority = split_target(self.url, self.parser.get_method())
        self.url = exact
        method, self._method = self._method, None
        if authority is not None:
            self.headers[:] = [(b"host", authority), *(field for field in self.headers if field[0] != b"host")]
        extensions = self.scope.setdefault("extensions", {})
        cast(dict[str, Any], extensions)[TARGET] = exact
        super().on_headers_complete()
        if has_body(self.headers):
            self.cycle.transport = cast(asyncio.Transport, _ClosedWithCare(self.transport, self._close_after))
        if method is not None:  # the application has not been called yet
            self.scope["method"] = method
        if self.scope["http_version"] != "1.0":
            cast(dict[str, Any], extensions)[INTERIM] = partial(self._send_interim, self.cycle)

    def _with_known_method(self, data: bytes) -> bytes:
        """Beginning of a request as the parser sees it. A method that the parser may not know is replaced by one with the same
        framing (RFC 9110, section 9.1: methods are an open set)."""
        self._method = None
        if data.startswith(_PARSED) or (named := _METHOD.match(data)) is None:
            return data
        self._method = named[1].decode("ascii")
        return b"PATCH" + data[named.end(1) :]

    def _send_interim(self, cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send an interim answer (RFC 9110, section 15.2), as long as the final one has not begun."""
        if cycle.response_started or cycle.disconnected or self.transport.is_closing():
            return
        fields = b"".join(b"%s: %s\r\n" % field for field in headers)
        self.transport.write(b"HTTP/1.1 %d %s\r\n%s\r\n" % (status, _INTERIM_PHRASES.get(status, b""), fields))

    def on_message_complete(self) -> None:
        """Callback of the parser: the request has ended, another head may follow."""
        super().on_message_complete()
        self._reading_head = True

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP, unless they have been refused already."""
        if not self._refused:
            super().send_400_response(msg)

    def _wait(self) -> None:
        self._patience = self.loop.call_later(HEAD_TIMEOUT_S, self._lose_patience)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._patience = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()  # the next request can wait for this one's answer
        elif self._head_bytes:
            self._refuse(408)
        else:
            self.transport.close()  # opened in advance, and never used

    def _refuse(self, status: int) -> None:
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # an earlier request on this connection is still being answered
            return
        self.transport.write(_REFUSALS[status] + b"content-length: 0\r\nconnection: close\r\n\r\n")
        self._linger()

    def _close_after(self) -> None:
        """Close the connection, after an answer that announced it."""
        if self.transport.is_closing() or self._refused:
            return
        if self.cycle.more_body:
            self._refused = True
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Close the connection after LINGER_S. Closing a socket with unread data would take the answer away from the client.
        Bytes that the client sends until then are dropped."""
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


class _ClosedWithCare:
    """Transport of one answer, closed in another way. Used for requests with a body only, because it costs time."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _RefusedError(Exception):
    """Error that stops the parser; the answer is on its way."""


def split_target(url: bytes, method: bytes) -> tuple[bytes, bytes | None]:
    """Target to ask the origin for, and the authority if the request named one.

    Raises ValueError for a text that is no target (RFC 9112, section 3.2).
    """
    if url.startswith(b"/"):
        return url.partition(b"#")[0], None
    if url == b"*" and method == b"OPTIONS":
        return url, None
    parsed = httptools.parse_url(url)
    if (parsed.schema or b"").lower() not in (b"http", b"https") or not parsed.host or parsed.userinfo is not None:
        raise ValueError(f"not a request target: {url[:100]!r}")
    rest = url.partition(b"://")[2].partition(b"#")[0]
    ends = [at for mark in b"/?" if (at := rest.find(mark)) >= 0]
    end = min(ends, default=len(rest))
    target = rest[end:]
    if not target and method == b"OPTIONS":
        return b"*", rest[:end]
    return (target if target.startswith(b"/") else b"/" + target), rest[:end]
