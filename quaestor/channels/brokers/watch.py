"""Watch for new runs: any number of clients wait, and one task for each channel looks at its newest run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from quaestor.errors import QuaestorError


class RunWatch:
    """Watch for new runs of all channels.

    newest: returns the newest run of a channel.
    look_s: seconds between two looks, for runs of other processes.

    A failed look is repeated; the clients wait until their time is over.
    """

    def __init__(self, newest: Callable[[str], Awaitable[int]], *, look_s: float = 0.5) -> None:
        self._newest = newest
        self._look_s = look_s
        self._waiters: dict[str, dict[asyncio.Future[int], int]] = {}
        self._lookers: dict[str, asyncio.Task[None]] = {}

    def notify(self, channel: str, run: int) -> None:
        """Wake the clients that wait for this run of a channel."""
        for waiter, after in list(self._waiters.get(channel, {}).items()):
            if run > after and not waiter.done():
                waiter.set_result(run)

    async def wait(self, channel: str, after: int, within_s: float) -> bool:
        """Wait for a run after a run; return whether there is one within the time."""
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(channel, {})
        waiters[waiter] = after
        if channel not in self._lookers:
            self._lookers[channel] = asyncio.create_task(self._look(channel))
        try:
            async with asyncio.timeout(within_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            del waiters[waiter]
            if not waiters:
                self._waiters.pop(channel, None)
                self._lookers.pop(channel).cancel()
        return True

    async def _look(self, channel: str) -> None:
        while True:
            with suppress(QuaestorError):  # the next look tries again
                self.notify(channel, await self._newest(channel))
            await asyncio.sleep(self._look_s)
