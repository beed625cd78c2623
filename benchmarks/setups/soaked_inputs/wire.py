"""A connection that asks one thing after the other, with as little work as can be: most of the machine is for the servers."""

from __future__ import annotations

import asyncio

from quaestor.testing.servers import HOST

ANSWER_S = 20.0


class Connection(asyncio.Protocol):
    """Of one client. Opened when it is used first, and anew when the server has closed it.

    address: of the client, one of the loopback's.
    """

    def __init__(self, port: int, address: str = HOST) -> None:
        self._port, self._address = port, address
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._waiting: asyncio.Future[tuple[int, bytes, bytes]] | None = None

    async def ask(self, raw: bytes) -> tuple[int, bytes, bytes]:
        """Status, header fields and body of the answer. Raises OSError if there is none."""
        loop = asyncio.get_running_loop()
        if self._transport is None or self._transport.is_closing():
            address = (self._address, 0)
            self._transport, _ = await loop.create_connection(lambda: self, HOST, self._port, local_addr=address)
        self._received, self._waiting = b"", loop.create_future()
        timer = loop.call_later(ANSWER_S, self.connection_lost, TimeoutError(f"no answer within {ANSWER_S} s"))
        try:
            self._transport.write(raw)
            return await self._waiting
        finally:
            timer.cancel()
            self._waiting = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end or self._waiting is None or self._waiting.done():
            return
        if len(body) >= int(field(head, b"content-length") or b"0"):
            self._waiting.set_result((int(head[9:12]), head, body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc if isinstance(exc, OSError) else ConnectionResetError("closed"))


def field(head: bytes, name: bytes) -> bytes:
    """The value of a header field; empty if it is absent. Servers of ours send names in lower case."""
    _, mark, rest = head.partition(b"\r\n" + name + b": ")
    return rest.partition(b"\r\n")[0] if mark else b""
