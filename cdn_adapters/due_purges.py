"""Due purges of a queue: purges that failed earlier, or that other processes left behind."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from quaestor.cdn_adapters.place_queue import PlaceQueue
from quaestor.cdn_adapters.sender_options import LAST_PAUSE_S, POLL_S
from quaestor.errors import StoreError
from quaestor.observability.telemetry import Telemetry
from quaestor.purge_ports import QueuedPurge
from quaestor.runtime.supervision.supervisor import Errands

DUE_EACH: Final = 16
"""Due purges for each request of them that may be under way."""


class DuePurges:
    """Due purges that one look after the other takes from the outbox. Use from one event loop.

    look_due_s: time of the next look, by the event loop's clock.
    waiting: purges that are taken and not sent.
    """

    def __init__(self, queue: PlaceQueue, errands: Errands, telemetry: Telemetry, wake: asyncio.Event) -> None:
        self.look_due_s = 0.0
        self.waiting: deque[QueuedPurge] = deque()
        self._queue = queue
        self._errands = errands
        self._telemetry = telemetry
        self._wake = wake
        self._pause_s = POLL_S
        self._looking: asyncio.Task[None] | None = None

    @property
    def looking(self) -> asyncio.Task[None] | None:
        """The look under way."""
        return self._looking

    def look(self, count: int) -> None:
        """Begin to look for at most this many purges, if it is time, and go on meanwhile."""
        late = asyncio.get_running_loop().time() >= self.look_due_s
        if late and count > 0 and self._looking is None and len(self.waiting) < DUE_EACH:
            self.look_due_s = asyncio.get_running_loop().time() + self._pause_s
            self._looking = self._errands.start(self._take(count))
            self._looking.add_done_callback(self._over)

    def take(self, most: int) -> list[QueuedPurge]:
        """Take at most this many of the waiting purges, the oldest first."""
        return [self.waiting.popleft() for _ in range(min(len(self.waiting), most))]

    async def looked(self) -> None:
        """Wait for the look under way, if there is one."""
        if self._looking is not None:
            await asyncio.wait({self._looking})

    async def _take(self, count: int) -> None:
        try:
            due = await self._queue.take(count)
            self._queue.taken.update(due)
            self.waiting.extend(due)
            self._pause_s = POLL_S
            if len(due) >= count:  # there may be more
                self.look_due_s = 0.0
        except StoreError as error:
            self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
            self._telemetry.failure("store", "cdn.outbox_away", error)

    def _over(self, task: asyncio.Task[None]) -> None:
        """Let the next look begin. A task that is cancelled before its first step runs no clean-up of its own."""
        if self._looking is task:
            self._looking = None
        self._wake.set()
