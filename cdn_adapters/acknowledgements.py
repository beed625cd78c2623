"""Acknowledgements of purges on their way to the outbox.

The outbox is told of some at a time; what is acknowledged meanwhile goes with the next call. So the more requests are answered,
the fewer round trips each of them costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quaestor.purge_ports import QueuedPurge
from quaestor.tasks import ended


class _Batch:
    """Acknowledgements that the outbox is told of together.

    told: when it knows them, or has not answered.
    """

    def __init__(self) -> None:
        self.held: list[QueuedPurge] = []
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Acknowledgements:
    """Acknowledgements of one sender. Use from one event loop.

    tell: tells the outbox of these; one call at a time.
    """

    def __init__(self, tell: Callable[[Sequence[QueuedPurge]], Awaitable[None]]) -> None:
        self._tell = tell
        self._next: _Batch | None = None
        self._telling: asyncio.Task[None] | None = None

    async def done(self, held: Sequence[QueuedPurge]) -> None:
        """Have the outbox told that these are done, and return when it was. Raises what `tell` raises."""
        if self._next is None:
            self._next = _Batch()
        batch = self._next
        batch.held.extend(held)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_all())
        await asyncio.shield(batch.told)

    async def aclose(self) -> None:
        """End. What was not told by then is not told."""
        await ended((self._telling,))

    async def _tell_all(self) -> None:
        """Tell one batch after the other, until there is none."""
        try:
            while (batch := self._next) is not None:
                self._next = None
                await self._tell_of(batch)
        finally:
            self._telling = None

    async def _tell_of(self, batch: _Batch) -> None:
        try:
            await self._tell(batch.held)
            batch.told.set_result(None)
        except Exception as error:
            batch.told.set_exception(error)
            batch.told.exception()  # told to who waits, unless that one has gone
        finally:
            batch.told.cancel()  # if the loop ends; otherwise it is over
