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


Rest = str | Callable[[], str]
"""Text of a message, or a function that makes it when its turn has come. Several sockets may share a text."""


class _Waiting(NamedTuple):
    """Message that waits. head, rest: its text in two parts."""

    queue: Queue | None
    generation: int
    head: str
    rest: Rest


class Outbox:
    """Outbox of one socket. Use from one event loop."""

    def __init__(self) -> None:
        self._items: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, head: str, rest: Rest = "", *, queue: Queue | None = None) -> None:
        """Add a message.

        head, rest: its text in two parts.
        queue: of its subscription. Messages that are dropped there are not sent.
        """
        if queue is not None:
            queue.waiting += 1
        self._items.append(_Waiting(queue, 0 if queue is None else queue.generation, head, rest))
        self._arrived.set()

    async def take(self) -> str:
        """The text of the next message. Waits for one."""
        while True:
            while self._items:
                queue, generation, head, rest = self._items.popleft()
                if queue is not None:
                    if queue.generation != generation:
                        continue
                    queue.waiting -= 1
                text = head + (rest if isinstance(rest, str) else rest())
                if text:
                    return text
            self._arrived.clear()
            await self._arrived.wait()
