"""Purges that a process has put in and sends itself: at once, while the outbox is told of them.

The outbox is told of one batch at a time; what is put in meanwhile is the next one. So the busier it gets, the fewer round trips
a purge costs, and no purge waits for any of them. A batch has one token and each target once: who has purged one of them has not
purged what was put in for it later.

Nothing is lost if the process dies in between: whoever puts a purge in keeps the claim of its invalidation until the outbox has
it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from quaestor.purge_ports import PurgeOutbox, QueuedPurge

_MOST_TOLD: Final = 1_000
"""Purges that the outbox is told of at once."""


class _Batch:
    """Purges that the outbox is told of together.

    token: of all of them.
    now_ms: when the first one was put in.
    until_ms: no copy that one of them is about is alive after that.
    told: when the outbox has them, or has refused them.
    """

    def __init__(self, token: str, now_ms: int) -> None:
        self.token = token
        self.now_ms = now_ms
        self.until_ms = 0
        self.members: dict[str, None] = {}
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def takes(self, members: Sequence[str]) -> bool:
        """Whether these may join."""
        return len(self.members) + len(members) <= _MOST_TOLD and self.members.keys().isdisjoint(members)


class OwnPurges:
    """Own purges of one sender. Use from one event loop.

    token: makes a name for a batch, unlike any other's.
    lease_ms: how long a purge may be taken and not acknowledged before it is anybody's again.
    """

    def __init__(self, outbox: PurgeOutbox, queue: str, *, token: Callable[[], str], lease_ms: int) -> None:
        self._outbox = outbox
        self._queue = queue
        self._token = token
        self._lease_ms = lease_ms
        self._waiting: deque[QueuedPurge] = deque()
        self._untold: deque[_Batch] = deque()
        self._told: dict[str, asyncio.Future[None]] = {}
        self._telling: asyncio.Task[None] | None = None

    async def put(self, members: Sequence[str], *, until_ms: int, now_ms: int, wake: Callable[[], None]) -> None:
        """Have these sent, and return when the outbox has them. Raises StoreError; they are sent all the same.

        wake: called as soon as they may be taken.
        """
        batch = self._batch(members, now_ms)
        batch.members.update(dict.fromkeys(members))
        batch.until_ms = max(batch.until_ms, until_ms)
        self._waiting.extend(QueuedPurge(one, batch.token, now_ms, until_ms, 0) for one in members)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())
        wake()
        await asyncio.shield(batch.told)

    @property
    def waiting(self) -> bool:
        """Whether there is one to be taken."""
        return bool(self._waiting)

    def take(self, most: int) -> list[QueuedPurge]:
        """Take so many at most, the oldest first."""
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), most))]

    async def told(self, held: Sequence[QueuedPurge]) -> None:
        """Wait until the outbox has these, or has refused them: what follows must not come before that."""
        telling = {self._told[token] for token in {purge.token for purge in held} if token in self._told}
        if telling:
            await asyncio.wait(telling)

    def _batch(self, members: Sequence[str], now_ms: int) -> _Batch:
        """The batch that these go with: the last one of which the outbox was not told yet, or another one behind it."""
        if self._untold and self._untold[-1].takes(members):
            return self._untold[-1]
        batch = _Batch(self._token(), now_ms)
        self._untold.append(batch)
        self._told[batch.token] = batch.told
        return batch

    async def _tell(self) -> None:
        """Tell the outbox of one batch after the other, until there is none."""
        try:
            while self._untold:
                await self._tell_of(self._untold.popleft())
        finally:
            self._telling = None

    async def _tell_of(self, batch: _Batch) -> None:
        try:
            await self._outbox.put(
                self._queue, list(batch.members), until_ms=batch.until_ms, now_ms=batch.now_ms, token=batch.token,
                lease_ms=self._lease_ms,
            )  # fmt: skip
            batch.told.set_result(None)
        except Exception as error:
            batch.told.set_exception(error)
            batch.told.exception()  # told to who put them in, unless that one has gone
        finally:
            del self._told[batch.token]
            batch.told.cancel()  # if the loop ends; otherwise it is over
