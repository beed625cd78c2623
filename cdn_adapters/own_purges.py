"""Own purges of a process: sent at once, while a call reports them to the outbox.

One call reports one batch to the outbox. Purges that arrive during the call form the next batch. With more load, each purge
therefore costs fewer round trips, and no purge waits for a round trip. A batch has one token and contains each target once: a
purge of a target never counts for a later purge of the same target.

Nothing is lost if the process dies in between: the invalidation's claim is kept until the outbox has the purge.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from quaestor.purge_ports import PurgeOutbox, QueuedPurge

_MOST_TOLD: Final = 1_000
"""Most purges in one call to the outbox."""


class _Batch:
    """Purges that one call reports to the outbox.

    token: of all of them.
    now_ms: when the first purge was put in.
    until_ms: time after which no copy of these targets lives.

    The future `recorded` is done when the outbox has the purges, and fails when it has refused them.
    """

    def __init__(self, token: str, now_ms: int) -> None:
        self.token = token
        self.now_ms = now_ms
        self.until_ms = 0
        self.members: dict[str, None] = {}
        self.recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def takes(self, members: Sequence[str]) -> bool:
        """Whether these members may join the batch."""
        return len(self.members) + len(members) <= _MOST_TOLD and self.members.keys().isdisjoint(members)


class OwnPurges:
    """Own purges of one sender. Use from one event loop.

    token: makes a unique name for a batch.
    lease_ms: how long a taken purge may stay unacknowledged before any process may take it.
    """

    def __init__(self, outbox: PurgeOutbox, queue: str, *, token: Callable[[], str], lease_ms: int) -> None:
        self._outbox = outbox
        self._queue = queue
        self._token = token
        self._lease_ms = lease_ms
        self._waiting: deque[QueuedPurge] = deque()
        self._unrecorded: deque[_Batch] = deque()
        self._recorded: dict[str, asyncio.Future[None]] = {}
        self._telling: asyncio.Task[None] | None = None

    async def put(self, members: Sequence[str], *, until_ms: int, now_ms: int, wake: Callable[[], None]) -> None:
        """Queue these purges for sending; return when the outbox has them. Raises StoreError; the purges are sent all the same.

        wake: called as soon as the purges may be taken.
        """
        batch = self._batch(members, now_ms)
        batch.members.update(dict.fromkeys(members))
        batch.until_ms = max(batch.until_ms, until_ms)
        self._waiting.extend(QueuedPurge(member, batch.token, now_ms, until_ms, 0) for member in members)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())
        wake()
        await asyncio.shield(batch.recorded)

    @property
    def waiting(self) -> bool:
        """Whether a purge is ready to be taken."""
        return bool(self._waiting)

    def take(self, most: int) -> list[QueuedPurge]:
        """Take at most this many purges, the oldest first."""
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), most))]

    async def recorded(self, held: Sequence[QueuedPurge]) -> None:
        """Wait until the outbox has these purges, or has refused them. Acknowledgements and retries must not reach the outbox
        before.
        """
        telling = {self._recorded[token] for token in {purge.token for purge in held} if token in self._recorded}
        if telling:
            await asyncio.wait(telling)

    def _batch(self, members: Sequence[str], now_ms: int) -> _Batch:
        """Return the batch that these members join: the last unreported batch, or a new one behind it."""
        if self._unrecorded and self._unrecorded[-1].takes(members):
            return self._unrecorded[-1]
        batch = _Batch(self._token(), now_ms)
        self._unrecorded.append(batch)
        self._recorded[batch.token] = batch.recorded
        return batch

    async def _tell(self) -> None:
        """Report one batch after the other to the outbox, until there is none."""
        try:
            while self._unrecorded:
                await self._tell_of(self._unrecorded.popleft())
        finally:
            self._telling = None

    async def _tell_of(self, batch: _Batch) -> None:
        try:
            await self._outbox.put(
                self._queue, list(batch.members), until_ms=batch.until_ms, now_ms=batch.now_ms, token=batch.token,
                lease_ms=self._lease_ms,
            )  # fmt: skip
            batch.recorded.set_result(None)
        except Exception as error:
            batch.recorded.set_exception(error)
            batch.recorded.exception()  # marks the error as seen: callers may have gone
        finally:
            del self._recorded[batch.token]
            batch.recorded.cancel()  # cancels the callers if the loop ends; otherwise the future is done
