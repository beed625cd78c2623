"""Outbox of one socket: messages in strict order, of each subscription a bounded number."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from starlette.types import Send

from quaestor.live.prompt_sends import BegunSend, begin


class Queue:
    """Unsent messages of one subscription.

    waiting: their number.
    generation: grows when they are dropped.
    """

    __slots__ = ("generation", "waiting")

    def __init__(self) -> None:
        self.generation = 0
        self.waiting = 0

    def drop(self) -> None:
        """Drop all messages that wait."""
        self.generation += 1
        self.waiting = 0


Frame = str | bytes
"""A message: JSON as text, or BSON."""
Rest = Frame | Callable[[], Frame]
"""Second part of a message, or a function that makes it when its turn has come. Several sockets may share it."""


def joined(head: Frame, rest: Frame) -> Frame:
    """A message of its two parts. Parts of two kinds: one is empty."""
    if isinstance(head, str) and isinstance(rest, str):
        return head + rest
    if isinstance(head, bytes) and isinstance(rest, bytes):
        return head + rest
    return head or rest


class _Waiting(NamedTuple):
    """Message that waits. head, rest: its two parts."""

    queue: Queue | None
    generation: int
    head: Frame
    rest: Rest


class Outbox:
    """Outbox of one socket. Use from one event loop.

    While no message waits, `put` sends the next one itself, so that no task wakes for it. A send that waits for the client goes
    on in a task, and later messages wait behind it.

    size: of the messages that wait, those included that were dropped.
    sent: number of messages that were sent.
    sending_since_s: when the send that waits was begun, by the event loop's clock; None: none waits.
    """

    __slots__ = (
        "_begun",
        "_error",
        "_items",
        "_prompt",
        "_send",
        "_start",
        "_waiter",
        "sending_since_s",
        "sent",
        "size",
    )

    def __init__(self) -> None:
        self.size = 0
        self.sent = 0
        self.sending_since_s: float | None = None
        self._send: Send | None = None
        self._start: Callable[[], None] | None = None
        self._prompt = False
        self._items: deque[_Waiting] | None = deque()
        """Messages that wait; None: the next message is sent by `put`."""
        self._begun: BegunSend | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._items or ())

    def is_full(self, most: int) -> bool:
        """Whether more messages wait than the client may leave unsent, dropped ones included."""
        return len(self) > most

    def open(self, send: Send, *, drain: Callable[[], None] | None) -> None:
        """Begin to send. Messages that wait already are for `run` or `drain`.

        drain: starts a task that runs `drain`; None: one task runs `run`, and all sends happen there.
        """
        self._send, self._start, self._prompt = send, drain, drain is not None
        if self._prompt and not self._items:
            self._items = None

    def close(self) -> None:
        """Send nothing any more."""
        self._prompt = False
        self._items, self._start, self._waiter = deque(), None, None
        self.size = 0

    def put(self, head: Frame, rest: Rest = "", *, queue: Queue | None = None) -> None:
        """Add a message.

        head, rest: its two parts.
        queue: of its subscription. Messages that are dropped there are not sent.
        """
        if self._items is None:
            frame = joined(head, rest() if callable(rest) else rest)
            if frame:
                self._begin(frame)
            return
        if queue is not None:
            queue.waiting += 1
        self.size += _size(head, rest)
        self._items.append(_Waiting(queue, 0 if queue is None else queue.generation, head, rest))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def drain(self) -> None:
        """Send all messages that wait, the begun one first. Raises what a send raises."""
        if self._error is not None:
            raise self._error
        loop, send = asyncio.get_running_loop(), self._send
        assert send is not None, "it is open"
        if self._begun is not None:
            begun, self._begun = self._begun, None
            await begun
            self.sent += 1
        while frame := self._next():
            self.sending_since_s = loop.time()
            await send(_message(frame))
            self.sent += 1
        self.sending_since_s = None
        if self._prompt:
            self._items = None

    async def run(self) -> None:
        """Send all messages in this task, until cancelled. Raises what a send raises."""
        loop = asyncio.get_running_loop()
        while True:
            await self.drain()
            self._waiter = loop.create_future()
            await self._waiter

    def _begin(self, frame: Frame) -> None:
        """Begin to send a message; no other waits."""
        assert self._send is not None, "it is open"
        try:
            self._begun = begin(self._send(_message(frame)))
        except Exception as error:  # the socket's own task raises it
            self._error = error
        else:
            if self._begun is None:
                self.sent += 1
                return
            self.sending_since_s = asyncio.get_running_loop().time()
        self._items = deque()
        if self._start is not None:
            self._start()

    def _next(self) -> Frame:
        """The next message that was not dropped; empty: there is none."""
        while self._items:
            queue, generation, head, rest = self._items.popleft()
            self.size -= _size(head, rest)
            if queue is not None:
                if queue.generation != generation:
                    continue
                queue.waiting -= 1
            frame = joined(head, rest() if callable(rest) else rest)
            if frame:
                return frame
        return ""


def _size(head: Frame, rest: Rest) -> int:
    """Size of a message as it waits. A result that is made when its turn comes has none yet."""
    return len(head) + (0 if callable(rest) else len(rest))


def _message(frame: Frame) -> dict[str, object]:
    return {"type": "websocket.send", "text" if isinstance(frame, str) else "bytes": frame}
