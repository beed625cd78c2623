"""Acknowledgements of purges on their way to the outbox.

One call reports several acknowledgements to the outbox. Acknowledgements that arrive during a call go with the next call. With
more answered requests, each request therefore costs fewer round trips.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quaestor.purge_ports import QueuedPurge
from quaestor.tasks import ended


class _Batch:
    """Acknowledgements that one call reports to the outbox.

    The future `recorded` is done when the outbox has the batch, and fails when the outbox does not answer.
    """

    def __init__(self) -> None:
        self.held: list[QueuedPurge] = []
        self.recorded: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Acknowledgements:
    """Acknowledgements of one sender. Use from one event loop.

    tell: reports purges as done to the outbox; one call at a time.
    """

    def __init__(self, tell: Callable[[Sequence[QueuedPurge]], Awaitable[None]]) -> None:
        self._tell = tell
        self._next: _Batch | None = None
        self._telling: asyncio.Task[None] | None = None

    async def done(self, held: Sequence[QueuedPurge]) -> None:
        """Report these purges as done to the outbox; return when the outbox has them. Raises what `tell` raises."""
        if self._next is None:
            self._next = _Batch()
        batch = self._next
        batch.held.extend(held)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_all())
        await asyncio.shield(batch.recorded)

    async def aclose(self) -> None:
        """End. Acknowledgements that have not reached the outbox by then are lost."""
        await ended((self._telling,))

    async def _tell_all(self) -> None:
        """Report one batch after the other, until there is none."""
        try:
            while (batch := self._next) is not None:
                self._next = None
                await self._tell_of(batch)
        finally:
            self._telling = None

    async def _tell_of(self, batch: _Batch) -> None:
        try:
            await self._tell(batch.held)
            batch.recorded.set_result(None)
        except Exception as error:
            batch.recorded.set_exception(error)
            batch.recorded.exception()  # marks the error as seen: callers may have gone
        finally:
            batch.recorded.cancel()  # cancels the callers if the loop ends; otherwise the future is done
