"""Purges that a process has put in and sends itself: at once, while the outbox is told of them.

Nothing is lost if it dies in between: whoever puts a purge in keeps the claim of its invalidation until the outbox has it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from quaestor.purge_ports import PurgeOutbox, QueuedPurge


class OwnPurges:
    """Own purges of one sender. Use from one event loop."""

    def __init__(self, outbox: PurgeOutbox, queue: str) -> None:
        self._outbox = outbox
        self._queue = queue
        self._waiting: deque[QueuedPurge] = deque()
        self._told: dict[str, asyncio.Task[None]] = {}

    async def put(
        self, members: Sequence[str], *, token: str, until_ms: int, now_ms: int, lease_ms: int, wake: Callable[[], None]
    ) -> None:
        """Have these sent, and return when the outbox has them. Raises StoreError; they are sent all the same.

        wake: called as soon as they may be taken.
        """
        telling = asyncio.create_task(
            self._outbox.put(
                self._queue, members, until_ms=until_ms, now_ms=now_ms, token=token, lease_ms=lease_ms
            )
        )  # fmt: skip
        self._told[token] = telling
        telling.add_done_callback(lambda task: self._over(token, task))
        self._waiting.extend(QueuedPurge(one, token, now_ms, until_ms, 0) for one in members)
        wake()
        await asyncio.shield(telling)

    def take(self, most: int) -> list[QueuedPurge]:
        """Take so many at most, the oldest first."""
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), most))]

    async def told(self, held: Sequence[QueuedPurge]) -> None:
        """Wait until the outbox has these, or has refused them: what follows must not come before that."""
        telling = {self._told[token] for token in {purge.token for purge in held} if token in self._told}
        if telling:
            await asyncio.wait(telling)

    def _over(self, token: str, task: asyncio.Task[None]) -> None:
        self._told.pop(token, None)
        if not task.cancelled():
            task.exception()  # told to who put them in, unless that one has gone
