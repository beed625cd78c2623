"""Clients of live benchmarks: streams of events and sockets that are read byte by byte, and note when bytes came."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from quaestor.testing.servers import HOST

MARKS = (b"data: ", b": opened\n", b": unchanged\n")
AT_ONCE = 200
"""Connections that are opened side by side."""


class Stream(asyncio.Protocol):
    """One stream of events.

    arrived_s: when the newest bytes came.
    read: number of bytes so far.
    """

    def __init__(self, port: int, path: str, known: str = "") -> None:
        self.arrived_s = 0.0
        self.read = 0
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nAccept: text/event-stream\r\n"
            + (f"Last-Event-ID: {known}\r\n" if known else "")
            + "\r\n"
        ).encode()
        self._transport: asyncio.Transport | None = None
        self._expected: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note when an event came, or the comment that stands for the first one."""
        if self._expected is None or not any(mark in data for mark in MARKS):
            return
        self.arrived_s = time.perf_counter()
        self.read += len(data)
        self._expected.set_result(None)
        self._expected = None

    def event(self) -> asyncio.Future[None]:
        """Completed when the next event comes. The same for all callers until then."""
        if self._expected is None:
            self._expected = asyncio.get_running_loop().create_future()
        return self._expected

    def close(self) -> None:
        """End the stream at once."""
        assert self._transport is not None
        self._transport.abort()


async def opened_streams(port: int, path: str, count: int) -> list[Stream]:
    """As many streams of one path, each with its first event."""
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    for start in range(0, count, AT_ONCE):
        batch = [Stream(port, path) for _ in range(min(AT_ONCE, count - start))]
        first = [stream.event() for stream in batch]
        for stream in batch:
            await loop.create_connection(lambda stream=stream: stream, HOST, port)  # type: ignore[misc]
        await asyncio.gather(*first)
        streams += batch
    return streams


class RawSocket(asyncio.Protocol):
    """A WebSocket that is read byte by byte: counts what arrives.

    answer: part of the message that answers the first one.
    arrived_s: when the newest bytes came.
    """

    answer = b""

    def __init__(self, port: int, first: str, path: str = "/live") -> None:
        self.opened = asyncio.get_running_loop().create_future()
        self.answered = asyncio.get_running_loop().create_future()
        self.arrived_s = 0.0
        self.transport: asyncio.Transport | None = None
        self._port = port
        self._path = path
        self._first = first

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            f"GET {self._path} HTTP/1.1\r\nHost: {HOST}:{self._port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        """Note when the bytes of a message came, and answer pings; after the upgrade send the first message."""
        data = self._answered_pings(data)
        if not data:
            return
        self.arrived_s = time.perf_counter()
        if not self.opened.done():
            assert data.startswith(b"HTTP/1.1 101"), data[:200]
            self.opened.set_result(None)
            assert self.transport is not None
            self.transport.write(_frame(self._first))
        elif not self.answered.done() and self.answer in data:
            self.answered.set_result(None)

    def _answered_pings(self, data: bytes) -> bytes:
        """Return the bytes behind the server's pings, each of which is answered. A ping is no message."""
        while data[:1] == b"\x89" and len(data) >= 2 + data[1]:
            assert self.transport is not None
            self.transport.write(bytes([0x8A, 0x80 | data[1]]) + bytes(4) + data[2 : 2 + data[1]])
            data = data[2 + data[1] :]
        return data


SocketT = TypeVar("SocketT", bound=RawSocket)


def _frame(text: str) -> bytes:
    """A masked text frame; the mask is zero, which leaves the text as it is."""
    body = text.encode()
    head = bytes([0x81, 0x80 | len(body)]) if len(body) < 126 else bytes([0x81, 0xFE]) + len(body).to_bytes(2, "big")
    return head + bytes(4) + body


async def opened(
    port: int,
    firsts: list[str],
    *,
    kind: type[SocketT] = RawSocket,
    path: str = "/live",  # type: ignore[assignment]
) -> list[SocketT]:
    """One socket for each first message, all answered."""
    loop = asyncio.get_running_loop()
    sockets: list[SocketT] = []
    for start in range(0, len(firsts), AT_ONCE):
        batch = [
            (await loop.create_connection(lambda first=first: kind(port, first, path), HOST, port))[1]  # type: ignore[misc]
            for first in firsts[start : start + AT_ONCE]
        ]
        await asyncio.gather(*(socket.answered for socket in batch))
        sockets += batch
    return sockets


def closed(sockets: Sequence[RawSocket]) -> None:
    for socket in sockets:
        assert socket.transport is not None
        socket.transport.abort()


def subscription(query: dict[str, Any]) -> str:
    return json.dumps({"type": "subscribe", "id": "1", "bucket": "items", "query": json.dumps(query)})


def most_open_files() -> int:
    """Raise the limit of open files as far as this process may; the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
