"""Clients of live benchmarks: streams of events that are read byte by byte, and note when bytes came."""

from __future__ import annotations

import asyncio
import resource
import time

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


def most_open_files() -> int:
    """Raise the limit of open files as far as this process may; the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
