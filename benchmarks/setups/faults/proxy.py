"""A link between two programs that can fail: a TCP proxy on loopback that passes, stalls, resets or delays.

All links of a test share one thread with one event loop; the methods are called from any other thread and have taken effect
when they return.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from quaestor.testing.servers import HOST

_CHUNK = 65_536
T = TypeVar("T")


class Links:
    """The thread that all links of a test run in. close() ends every connection."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._links: list[Link] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def to(self, port: int, *, receive_buffer: int | None = None) -> Link:
        """A new link to what listens on this loopback port, now or later.

        receive_buffer: bytes that the system takes from it while the link is stalled; None: as many as it likes.
        """
        link = Link(self, port, receive_buffer)
        self._links.append(link)
        self.run(link._open())
        return link

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def close(self) -> None:
        for link in self._links:
            self.run(link._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)
        self._loop.close()


class Link:
    """port: where to connect. pass_() is how it begins."""

    def __init__(self, links: Links, to_port: int, receive_buffer: int | None) -> None:
        self._links = links
        self._receive_buffer = receive_buffer
        self._to_port = to_port
        self._server: asyncio.Server | None = None
        self._pairs: dict[_Pair, asyncio.Task[None]] = {}
        self._flowing = asyncio.Event()
        self._refusing = False
        self._delay_s = 0.0
        self.port = 0

    # Faults of the link

    def pass_(self) -> None:
        """End all faults. Data held back by a stall arrives."""
        self._do(lambda: self._set(flowing=True, refusing=False, delay_s=0))

    def stall(self) -> None:
        """Connections stay, new ones are accepted, nothing comes through in either direction."""
        self._do(lambda: self._set(flowing=False, refusing=False, delay_s=0))

    def reset(self) -> None:
        """Connections are reset, now and when new ones are made."""

        def cut() -> None:
            self._set(flowing=True, refusing=True, delay_s=0)
            self._abort()

        self._do(cut)

    def delay(self, seconds: float) -> None:
        """Everything arrives, later by so much in each direction."""
        self._do(lambda: self._set(flowing=True, refusing=False, delay_s=seconds))

    def lose(self) -> None:
        """As when a firewall forgets: nothing comes through present connections any more, without a word; new ones work."""

        def forget() -> None:
            for pair in self._pairs:
                pair.lost = True
            self._set(flowing=True, refusing=False, delay_s=0)

        self._do(forget)

    def client_port(self, upstream_port: int) -> int | None:
        """The port of the client whose connection the server sees as coming from upstream_port."""
        return next((pair.client_port for pair in list(self._pairs) if pair.upstream_port == upstream_port), None)

    # How

    def _do(self, change: Callable[[], None]) -> None:
        async def work() -> None:
            change()

        self._links.run(work())

    def _set(self, *, flowing: bool, refusing: bool, delay_s: float) -> None:
        self._refusing, self._delay_s = refusing, delay_s
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()

    def _abort(self) -> None:
        for pair in self._pairs:
            pair.abort()

    async def _open(self) -> None:
        self._flowing.set()
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._pairs.values())
        self._abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        pair = _Pair(writer)
        task = asyncio.current_task()
        assert task is not None
        self._pairs[pair] = task
        try:
            await self._flowing.wait()
            up_reader, up_writer = await self._connect()
            pair.upstream = up_writer
            await asyncio.gather(self._pump(pair, reader, up_writer), self._pump(pair, up_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # the server is away, or one side has gone: so does the other
        finally:
            pair.abort()
            self._pairs.pop(pair, None)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._receive_buffer is None:
            return await asyncio.open_connection(HOST, self._to_port)
        upstream = socket.socket()
        upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        upstream.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(upstream, (HOST, self._to_port))
        except BaseException:
            upstream.close()
            raise
        return await asyncio.open_connection(sock=upstream)

    async def _pump(self, pair: _Pair, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await self._flowing.wait()
            if pair.lost:
                continue
            sink.write(data)
            await sink.drain()
        if not pair.lost:
            raise ConnectionResetError("one side has ended")


class _Pair:
    """A client's connection and ours to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.client_port = int(client.get_extra_info("peername")[1])
        self.upstream: asyncio.StreamWriter | None = None
        self.lost = False

    @property
    def upstream_port(self) -> int | None:
        return None if self.upstream is None else int(self.upstream.get_extra_info("sockname")[1])

    def abort(self) -> None:
        for writer in (self.client, self.upstream):
            if writer is not None:
                with suppress(OSError):
                    writer.transport.abort()
