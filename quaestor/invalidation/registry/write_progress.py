"""Progress of the grid through the writes, for callers that wait until some writes are matched everywhere."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from quaestor.invalidation.registry.grid_view import GridView
from quaestor.model import Version


class WriteProgress:
    """Progress reported by heartbeats. advance() is called in the reading thread, until() on any event loop.

    matched: version up to which every cell has matched all writes, and their invalidations have been acted on.
    """

    def __init__(self, view: GridView) -> None:
        self.matched: Version = 0
        self._view = view
        self._waiting: dict[asyncio.Future[None], Version] = {}
        self._lock = threading.Lock()

    def advance(self) -> None:
        """Take over the progress from the view of the grid, after all earlier notifications were acted on. O(cells)."""
        self.matched = self._view.matched()
        if not self._waiting:
            return
        with self._lock:
            done = [waiting for waiting, version in self._waiting.items() if version <= self.matched]
        for waiting in done:
            with suppress(RuntimeError):  # its loop was closed
                waiting.get_loop().call_soon_threadsafe(_end, waiting)

    async def until(self, version: Version) -> None:
        """Return when every cell has matched all writes up to this version, and local listeners know the invalidations.

        Local: on this event loop. Waits without a bound.
        """
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting[waiting] = version
        try:
            if version <= self.matched:
                await asyncio.sleep(0)  # the listeners' turn comes first
            else:
                await waiting
        finally:
            with self._lock:
                del self._waiting[waiting]


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
