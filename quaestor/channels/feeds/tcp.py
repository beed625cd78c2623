"""TCP source: a JSON object on each line. A connection whose records cannot be written yet is not read."""

from __future__ import annotations

import asyncio
from typing import Final

from quaestor.channels.feeds.feed import MOST_RECORDS, Feed
from quaestor.channels.feeds.records import FeedError, Incoming, Lines
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.observability.telemetry import Telemetry

_PART: Final = 1 << 16
_MOST_CONNECTIONS: Final = 100
_AGAIN_S: Final = 1.0


class TcpSource:
    """Server for the lines of one feed. At least once: a client learns of no record whether it is durable.

    address: host and port, like 127.0.0.1:10001.
    """

    def __init__(self, feed: Feed, address: str, telemetry: Telemetry) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError(f"{address!r} is no address: write host:port")
        self._feed = feed
        self._host, self._port = host, int(port)
        self._telemetry = telemetry
        self._lock = asyncio.Lock()
        self._readers: set[asyncio.StreamReader] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Port of the server, once it has started."""
        return self._port if self._server is None else int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Begin to listen. Raises DependencyError."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=_PART)
        except OSError as error:
            raise DependencyError(f"{self._host}:{self._port} cannot be listened on: {error}") from error

    async def stop(self) -> None:
        """Close the server, write the lines that have come, and return when they are durable."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for reader in self._readers:
            reader.feed_eof()
        await self._idle.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._readers) >= _MOST_CONNECTIONS:
            writer.close()
            return
        self._readers.add(reader)
        self._idle.clear()
        lines = Lines()
        try:
            while part := await reader.read(_PART):
                await self._write([Incoming(line) for line in lines.feed(part)])
            await self._write([Incoming(line) for line in lines.end()])
        except (FeedError, ConnectionError) as error:
            self._telemetry.failure("feeds", "feeds.connection_ended", error, feed=self._feed.definition.name)
        finally:
            writer.close()
            self._readers.discard(reader)
            if not self._readers:
                self._idle.set()

    async def _write(self, records: list[Incoming]) -> None:
        """Write records, however long it takes. Nothing more is read meanwhile."""
        for start in range(0, len(records), MOST_RECORDS):
            batch = records[start : start + MOST_RECORDS]
            while True:
                try:
                    async with self._lock:
                        await asyncio.to_thread(self._feed.take, batch)
                    break
                except DependencyError as error:
                    self._telemetry.failure("feeds", "feeds.write_failed", error, feed=self._feed.definition.name)
                    await asyncio.sleep(_AGAIN_S)
