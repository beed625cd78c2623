"""Byte stream to and from the origin: one socket with flow control both ways, which detects bytes outside an exchange."""

from __future__ import annotations

import asyncio
from typing import cast

_HIGH_WATER_BYTES = 256 * 1024


class ByteStream(asyncio.Protocol):
    """Byte stream on one socket.

    read() and drain() wait; all other methods return at once.

    idle: whether no bytes are expected; bytes that come then make the stream useless.
    """

    def __init__(self) -> None:
        self.idle = False
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._ended = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Bytes received, at least one; b"" at the end. Raises ConnectionError if the end was a failure."""
        if not self._received and not self._ended:
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._received:
            data = bytes(self._received)
            self._received.clear()
            if self._transport is not None and not self.closed:
                self._transport.resume_reading()
            return data
        if self._error is not None:
            raise ConnectionError(str(self._error)) from self._error
        return b""

    def write(self, data: bytes) -> None:
        """Send these bytes. Does nothing if the socket is closed."""
        if self._transport is not None and not self.closed:
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the other side keeps up. Raises ConnectionError once it is gone."""
        if self.closed:
            raise ConnectionError("the connection is closed")
        if self._writable is not None:
            await self._writable

    def close(self) -> None:
        """Close the socket at once; bytes that were not sent yet are lost."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. Bytes outside an exchange close the socket."""
        if self.idle:
            self.close()
            return
        self._received += data
        if len(self._received) > _HIGH_WATER_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """See asyncio.Protocol."""
        self._ended = True
        if self.idle:
            self.closed = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.closed = self._ended = True
        self._error = self._error or exc
        self._wake()
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(ConnectionError("the connection was lost"))
            self._writable.exception()  # marked as read, because perhaps no task waits
            self._writable = None

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
