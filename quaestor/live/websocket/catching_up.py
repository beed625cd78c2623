"""Catching up: a result that is followed already contains every acknowledged write before a new subscription receives it."""

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

_LOOK_EVERY_S: Final = 0.002


class CatchingUp:
    """Catching up of followed results with the database.

    connection: to the database of the queries.
    own_writes: makes the grid report its progress at once.
    within_s: the longest wait. After it a subscription begins with an older result, and newer writes follow as events.
    """

    def __init__(self, connection: Connection, own_writes: OwnWritesBarrier, *, within_s: float = 1.0) -> None:
        self._connection = connection
        self._own_writes = own_writes
        self._within_s = within_s

    async def wait(self, live: LiveResult) -> None:
        """Wait until the result contains every write that MongoDB has acknowledged before the call."""
        try:
            async with asyncio.timeout(self._within_s):
                newest = await self._newest()
                self._own_writes.expect()
                while live.version < newest and not live.failed:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_EVERY_S)
        except (TimeoutError, PyMongoError):
            return

    async def _newest(self) -> Version:
        with not_recording():
            return newest_of(await self._connection.run(self._connection.database.command, "ping"))
