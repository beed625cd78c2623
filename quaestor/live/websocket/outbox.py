"""Outbox of one socket: messages in strict order, of each subscription a bounded number."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


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
    """Outbox of one socket. Use from one event loop."""

    def __init__(self) -> None:
        self._items: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, head: Frame, rest: Rest = "", *, queue: Queue | None = None) -> None:
        """Add a message.

        head, rest: its two parts.
        queue: of its subscription. Messages that are dropped there are not sent.
        """
        if queue is not None:
            queue.waiting += 1
        self._items.append(_Waiting(queue, 0 if queue is None else queue.generation, head, rest))
        self._arrived.set()

    async def take(self) -> Frame:
        """The next message. Waits for one."""
        while True:
            while self._items:
                queue, generation, head, rest = self._items.popleft()
                if queue is not None:
                    if queue.generation != generation:
                        continue
                    queue.waiting -= 1
                frame = joined(head, rest() if callable(rest) else rest)
                if frame:
                    return frame
            self._arrived.clear()
            await self._arrived.wait()
