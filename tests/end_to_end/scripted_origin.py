"""An HTTP origin that answers with given bytes and keeps what it was sent; a proxy before it; a client that speaks raw HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.server import application, configuration
from quaestor.settings import Settings
from quaestor.testing.servers import HOST, free_port
from tests.support import eventually

PLAIN = Settings(explicit=True, grid=False, early_refresh=0.0)
"""A plain HTTP cache, without what chance decides."""


@dataclass(slots=True)
class Asked:
    """One request as the origin received it."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""

    def of(self, name: bytes) -> list[bytes]:
        return [value for field, value in self.headers if field.lower() == name]


Script = Callable[[Asked], bytes]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class ScriptedOrigin:
    """script: the bytes to answer a request with; b"" closes the connection at once. A connection whose answer has no
    length is closed after it."""

    script: Script
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await read_request(reader)) is not None:
                self.asked.append(request)
                answer = self.script(request)
                writer.write(answer)
                await writer.drain()
                head = answer.partition(b"\r\n\r\n")[0].lower()
                if (
                    b"content-length" not in head
                    and b"chunked" not in head
                    and b" 304 " not in head
                    and b" 204 " not in head
                ):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Asked | None:
    line = await reader.readline()
    if not line:
        return None
    headers: list[tuple[bytes, bytes]] = []
    while (text := await reader.readline()).strip():
        name, _, value = text.rstrip(b"\r\n").partition(b":")
        headers.append((name, value.strip()))
    request = Asked(line.rstrip(b"\r\n"), headers)
    if length := request.of(b"content-length"):
        request.body = await reader.readexactly(int(length[0]))
    elif request.of(b"transfer-encoding"):
        while size := int(await reader.readline(), 16):
            request.body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    return request


@asynccontextmanager
async def listening(serve: Serve, *, scheme: str = "http", **options: Any) -> AsyncIterator[str]:
    """An origin that does as `serve` does with each connection; its URL. At the end nothing of it is left open."""
    running: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        writers.add(writer)
        try:
            await serve(reader, writer)
        except asyncio.CancelledError:
            pass  # asyncio's own callback would report it as an error
        finally:
            running.discard(task)

    server = await asyncio.start_server(connected, HOST, 0, **options)
    try:
        yield "{}://{}:{}".format(scheme, *server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for writer in writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def scripted_origin(script: Script) -> AsyncIterator[ScriptedOrigin]:
    origin = ScriptedOrigin(script)
    async with listening(origin.serve, limit=1 << 20) as origin.url:
        yield origin


@asynccontextmanager
async def silent_origin() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """The URL of an origin that reads and never answers; and what is set once the other side has left."""
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()
        writer.close()

    async with listening(serve) as url:
        yield url, left


@asynccontextmanager
async def proxy(options: ProxyOptions, settings: Settings = PLAIN) -> AsyncIterator[str]:
    """The whole proxy under uvicorn in this loop; its URL."""
    async with serving(configuration(application(options, settings))) as url:
        yield url


@asynccontextmanager
async def serving(config: uvicorn.Config) -> AsyncIterator[str]:
    config.host, config.port, config.log_level = HOST, free_port(), "critical"
    config.configure_logging()
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or running.done())
    try:
        yield f"http://{HOST}:{config.port}"
    finally:
        server.should_exit = True
        await running


async def raw(url: str, *requests: bytes) -> bytes:
    """Return the bytes that a connection sends back for these bytes, until the server closes it."""
    reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
    try:
        for request in requests:
            writer.write(request)
            await writer.drain()
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


def answer(status: str = "200 OK", *fields: str, body: bytes = b"") -> bytes:
    head = [f"HTTP/1.1 {status}", *fields]
    if not any(field.lower().startswith(("content-length", "transfer-encoding")) for field in fields):
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
