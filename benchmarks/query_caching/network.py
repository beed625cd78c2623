"""Network of a client machine: HTTP/1.1 over connections that are kept, as a transport of httpx, for benchmarks.

This network replaces httpx's own, whose pool and parser cost a millisecond of processor time for an answer. All servers
together take less. On a shared machine, the benchmark would measure httpx. Here a protocol of asyncio writes a request as one
piece and has the answer parsed in C (httptools). Requests, answers and connections are the same; an answer is handed on when it
has come whole.

Not part of it: TLS, bodies that are sent, pipelining, proxies, redirects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

import httptools
import httpx

from quaestor.errors import QuaestorError

PATIENCE_S: Final = 60.0
"""Nothing takes so long, unless it is broken."""
KEPT_S: Final = 4.0
"""An idle connection is used again: Varnish closes them after 5 s, and what is sent meanwhile would be lost."""

Headers = list[tuple[bytes, bytes]]


class Connection(asyncio.Protocol):
    """One connection, for one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answered: asyncio.Future[httpx.Response] | None = None
        self._headers: Headers = []
        self._body: list[bytes] = []
        self.lost = asyncio.Event()
        self.idle_since_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether another request may be sent on it."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: who waits for an answer gets none."""
        self._transport = None
        self.lost.set()
        self._failed(httpx.RemoteProtocolError("the server closed the connection before its answer had come"))

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._failed(httpx.RemoteProtocolError(f"this is no answer: {error}"))
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of an answer."""
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """An answer has come whole."""
        headers, body, self._headers, self._body = self._headers, b"".join(self._body), [], []
        if not self._parser.should_keep_alive():
            self.close()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(
                httpx.Response(self._parser.get_status_code(), headers=headers, stream=httpx.ByteStream(body))
            )

    async def ask(self, request: httpx.Request) -> httpx.Response:
        """The answer to a request. Raises httpx.TransportError."""
        if self._transport is None:
            raise httpx.RemoteProtocolError("the connection is closed")
        self._answered = self._loop.create_future()
        lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
        lines += [b"%s: %s" % field for field in request.headers.raw]
        self._transport.write(b"\r\n".join((*lines, b"", b"")))
        patience = self._loop.call_later(PATIENCE_S, self._failed, httpx.ReadTimeout(f"no answer in {PATIENCE_S:g} s"))
        try:
            return await self._answered
        except BaseException:
            self.close()  # whatever still comes is the answer to nobody's request
            raise
        finally:
            patience.cancel()
            self._answered = None

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()

    def _failed(self, error: httpx.TransportError) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


class Network(httpx.AsyncBaseTransport):
    """Connections of one client machine to one server, as many as there are requests at a time."""

    def __init__(self, url: str) -> None:
        parsed = httpx.URL(url)
        if parsed.scheme != "http" or parsed.port is None:
            raise QuaestorError(f"the server must be a URL such as http://127.0.0.1:8000, not {url!r}")
        self._host, self._port = parsed.host, parsed.port
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request whose body is empty. Raises httpx.TransportError."""
        connection = self._kept() or await self._connected()
        response = await connection.ask(request)
        connection.idle_since_s = asyncio.get_running_loop().time()
        self._idle.append(connection)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        connections = list(self._open)
        self._idle.clear()
        self._open.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.lost.wait()

    def _kept(self) -> Connection | None:
        """Return the open connection that was used last; close connections that have been idle for too long."""
        now_s = asyncio.get_running_loop().time()
        while self._idle and self._idle[0].idle_since_s < now_s - KEPT_S:
            self._idle.popleft().close()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(Connection, self._host, self._port)
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        self._open = {connection for connection in self._open if not connection.lost.is_set()} | {connection}
        return connection
