"""Catching up: a result contains every acknowledged write before a new subscription receives it."""

from __future__ import annotations

import asyncio
from typing import Final

from pymongo.errors import PyMongoError

from quaestor.capture import not_recording
from quaestor.cluster_time import newest_of
from quaestor.model import Version
from quaestor.ports import OwnWritesBarrier
from quaestor.realtime.live import LiveResult
from quaestor.rest.database import Connection

_FIRST_LOOK_S: Final = 0.002
_LONGEST_S: Final = 0.016


class CatchingUp:
    """Catching up of followed results with the database. Use from one event loop.

    connection: to the database of the queries.
    own_writes: makes the grid report its progress at once.
    within_s: the longest wait. After it a subscription begins with an older result, and newer writes follow as events.
    """

    def __init__(self, connection: Connection, own_writes: OwnWritesBarrier, *, within_s: float = 1.0) -> None:
        self._connection = connection
        self._own_writes = own_writes
        self._within_s = within_s
        self._asking = asyncio.Lock()
        self._next: asyncio.Task[Version] | None = None

    def acknowledged(self) -> asyncio.Future[Version]:
        """Begin to ask for a version that no write acknowledged before the call exceeds; 0: MongoDB does not say.

        Calls that come while MongoDB is asked share the next question.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._ask())
        return asyncio.shield(self._next)

    async def wait(self, live: LiveResult, version: Version) -> None:
        """Wait until the result contains every write up to the version."""
        if live.version >= version:
            return
        self._own_writes.expect()
        pause_s = _FIRST_LOOK_S
        try:
            async with asyncio.timeout(self._within_s):
                while live.version < version and not live.failed:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_S)  # many may wait, after a restart
        except TimeoutError:
            return

    async def _ask(self) -> Version:
        async with self._asking:
            self._next = None
            try:
                async with asyncio.timeout(self._within_s):
                    with not_recording():
                        return newest_of(await self._connection.run(self._connection.database.command, "ping"))
            except (TimeoutError, PyMongoError):
                return 0
