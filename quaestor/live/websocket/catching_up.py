"""Catching up: a result that is followed already contains every acknowledged write before a new subscription receives it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import anyio.to_thread
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from quaestor.capture import not_recording
from quaestor.cluster_time import version_of
from quaestor.model import Version
from quaestor.ports import OwnWritesBarrier
from quaestor.realtime.live import LiveResult

_LOOK_EVERY_S: Final = 0.002


class CatchingUp:
    """Catching up of followed results with the database.

    database: a pymongo database, asynchronous or not.
    own_writes: makes the grid report its progress at once.
    within_s: the longest wait. After it a subscription begins with an older result, and newer writes follow as events.
    """

    def __init__(self, database: Any, own_writes: OwnWritesBarrier, *, within_s: float = 1.0) -> None:
        self._database = database
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
        """Version of the newest write that MongoDB has acknowledged; 0: the server does not say."""
        with not_recording():
            if isinstance(self._database, AsyncDatabase):
                reply = await self._database.command("ping")
            else:
                reply = await anyio.to_thread.run_sync(self._database.command, "ping")
        return version_of(reply["operationTime"]) if "operationTime" in reply else 0
