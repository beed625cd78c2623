"""Pool of connections to the origin: limits their number, and uses idle ones again."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from quaestor.errors import ConfigurationError
from quaestor.proxy.byte_stream import ByteStream
from quaestor.proxy.connection import Connection
from quaestor.proxy.options import ProxyOptions


class NoConnectionError(Exception):
    """Error that all connections are in use, and that none became free in time."""


class Pool:
    """Pool of connections to one origin.

    Last in, first out, so that unneeded connections grow old and are closed. At most half of them wait for the rest of a
    request's body. However many clients send slowly, the other half serves all other clients. Use from one event loop.
    """

    def __init__(self, options: ProxyOptions) -> None:
        parts = urlsplit(options.base)
        self._options = options
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = _tls(options) if parts.scheme == "https" else None
        self._free = asyncio.Semaphore(options.max_connections)
        self._uploads = asyncio.Semaphore(max(1, options.max_connections // 2))
        self._idle: list[Connection] = []

    async def take(self, *, fresh: bool = False, uploading: bool = False) -> Connection:
        """Take an idle connection, or a new one. Every taken connection must be given back with put().

        uploading: whether the request's body is not complete yet.

        Raises NoConnectionError, OSError, TimeoutError (connecting took too long).
        """
        await self._acquire(uploading=uploading)
        try:
            connection = (None if fresh else self._used()) or await self._connect()
        except BaseException:
            self._free.release()
            if uploading:
                self._uploads.release()
            raise
        if uploading:
            connection.on_body_sent = self._uploads.release
        return connection

    async def _acquire(self, *, uploading: bool) -> None:
        waits_for_share = uploading
        try:
            async with asyncio.timeout(self._options.pool_timeout_s):
                if uploading:
                    await self._uploads.acquire()
                    waits_for_share = False
                await self._free.acquire()
        except BaseException as error:
            if uploading and not waits_for_share:
                self._uploads.release()
            if isinstance(error, TimeoutError):
                raise NoConnectionError from error
            raise

    def put(self, connection: Connection) -> None:
        """Give back a connection that is no longer used."""
        self._free.release()
        connection.body_sent()
        if connection.finish() and len(self._idle) < self._options.max_connections:
            connection.idle_since_s = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()
        self._close_old()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _used(self) -> Connection | None:
        self._close_old()
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    def _close_old(self) -> None:
        oldest_s = asyncio.get_running_loop().time() - self._options.keepalive_s
        while self._idle and (self._idle[0].closed or self._idle[0].idle_since_s < oldest_s):
            self._idle.pop(0).close()

    async def _connect(self) -> Connection:
        async with asyncio.timeout(self._options.connect_timeout_s):
            _, stream = await asyncio.get_running_loop().create_connection(
                ByteStream, self._host, self._port, ssl=self._tls, server_hostname=self._host if self._tls else None
            )
        return Connection(
            stream, read_timeout_s=self._options.read_timeout_s, write_timeout_s=self._options.write_timeout_s
        )


def _tls(options: ProxyOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(options.origin_ca) if options.origin_ca is not None else None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"--origin-ca {options.origin_ca}: {error}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context
