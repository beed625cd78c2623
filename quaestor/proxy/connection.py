"""Connection to the origin: HTTP/1.1, one exchange after the other (h11 enforces the rules of the protocol)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

import h11

from quaestor.proxy.byte_stream import ByteStream

MAX_HEAD_BYTES = 128 * 1024
Interim = Callable[[int, list[tuple[bytes, bytes]]], None]
"""Function that receives the status and the fields of an interim answer (1xx) to pass on."""


class RequestBrokeOffError(Exception):
    """Error that the client went away, or was silent for too long, while it was sending its request."""


class Connection:
    """Connection to the origin.

    exchanges: number of exchanges begun.
    answered: whether any byte came back in the current exchange.
    on_body_sent: called once when no more of the current request's body is sent, for any reason.
    """

    def __init__(self, stream: ByteStream, *, read_timeout_s: float, write_timeout_s: float) -> None:
        self.exchanges = 0
        self.answered = False
        self.idle_since_s = 0.0
        self.on_body_sent: Callable[[], None] | None = None
        self._stream = stream
        self._read_timeout_s = read_timeout_s
        self._write_timeout_s = write_timeout_s
        self._rules = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._sending: asyncio.Task[None] | None = None
        self._broke_off: RequestBrokeOffError | None = None
        self._patience: asyncio.Timeout | None = None

    @property
    def closed(self) -> bool:
        """Whether the connection cannot be used any more."""
        return self._stream.closed

    async def ask(
        self,
        method: str,
        target: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: AsyncIterator[bytes] | None,
        interim: Interim,
    ) -> h11.Response:
        """Send a request; returns when the head of its answer has come, even if the body is still being sent.

        Raises h11.LocalProtocolError (not a request), h11.RemoteProtocolError (not HTTP), ConnectionError, EOFError (closed
        without an answer), TimeoutError, RequestBrokeOffError.
        """
        self._stream.idle = False
        self.exchanges += 1
        self.answered = False
        self._send(h11.Request(method=method, target=target, headers=list(headers)))
        if body is None:
            self._send(h11.EndOfMessage())
        else:
            self._sending = asyncio.create_task(self._send_body(body))
            self._sending.add_done_callback(self._sent)
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    raise h11.RemoteProtocolError("it switches protocols unasked")
                if event.status_code != 100:  # a client that waited for "100 Continue" has received it already
                    interim(event.status_code, list(event.headers))
            elif isinstance(event, h11.ConnectionClosed):
                raise EOFError("closed without an answer")

    async def body(self) -> AsyncGenerator[bytes, None]:
        """Body of the answer. Raises as ask() does."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            elif isinstance(event, h11.ConnectionClosed):
                raise EOFError("closed within the answer")

    def finish(self) -> bool:
        """Whether another exchange may follow: both sides are done, and no bytes came after the answer."""
        if self._sending is not None and not self._sending.done():
            self.close()
            return False
        self._sending = None
        done = self._rules.our_state is h11.DONE and self._rules.their_state is h11.DONE
        if not done or self._rules.trailing_data != (b"", False) or self._stream.closed:
            self.close()
            return False
        self._rules.start_next_cycle()
        self._stream.idle = True
        return True

    def body_sent(self) -> None:
        """Report that no more of the body is sent, unless that was reported already."""
        on_body_sent, self.on_body_sent = self.on_body_sent, None
        if on_body_sent is not None:
            on_body_sent()

    def close(self) -> None:
        """Close the connection at once, even during an exchange."""
        if self._sending is not None:
            self._sending.cancel()
        self._stream.close()

    async def _next(self) -> object:
        while (event := self._rules.next_event()) is h11.NEED_DATA:
            data = await self._read()
            self.answered = self.answered or bool(data)
            if not data and not self.answered:
                raise self._broke_off or EOFError("closed without an answer")
            self._rules.receive_data(data)
        return event

    async def _read(self) -> bytes:
        """Received bytes. The origin's silence counts from its receipt of the whole request: before, it waits for the client."""
        sending = self._sending is not None and not self._sending.done()
        try:
            async with asyncio.timeout(None if sending else self._read_timeout_s) as self._patience:
                return await self._stream.read()
        except ConnectionError:
            if self._broke_off is not None:
                raise self._broke_off from None
            raise
        finally:
            self._patience = None

    async def _send_body(self, body: AsyncIterator[bytes]) -> None:
        try:
            async for piece in body:
                self._send(h11.Data(data=piece))
                async with asyncio.timeout(self._write_timeout_s):
                    await self._stream.drain()
            self._send(h11.EndOfMessage())
        except RequestBrokeOffError as error:
            self._broke_off = error
            self._stream.close()
        except (ConnectionError, TimeoutError):
            # The origin does not want the rest; its answer perhaps names the reason.
            if not self._stream.closed:
                self._stream.close()

    def _sent(self, task: asyncio.Task[None]) -> None:
        self.body_sent()
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + self._read_timeout_s)
        if not task.cancelled() and task.exception() is not None:
            self._stream.close()

    def _send(self, event: h11.Event) -> None:
        if data := self._rules.send(event):
            self._stream.write(data)
