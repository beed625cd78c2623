"""The eviction of an entry that must not be served after all, or that may have died unnoticed.

A write that a store did not acknowledge may still arrive: the server was busy, or the packet was late. The entry then lies there
for its lifetime, and other processes will find it. Its registrations go on guarding it for as long as that is possible.
"""

from __future__ import annotations

import asyncio
from typing import Final

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.observability.event_log import EventLog
from quaestor.ports import QueryRegistry, ResponseStore

AGAIN_AFTER_S: Final = (1.0, 2.0, 4.0)
"""Pauses before the eviction is tried again: it ends well before any process forgets a dead registration."""


class EvictionRetry:
    """Evicts single entries, and retries if the store does not answer; one per read path. Use from one event loop."""

    def __init__(self, *, store: ResponseStore, registry: QueryRegistry, telemetry: EventLog) -> None:
        self._store = store
        self._registry = registry
        self._telemetry = telemetry

    async def take(self, response: CachedResponse, *, acknowledged: bool) -> bool:
        """Evict an entry. False: the store did not answer; call again().

        acknowledged: the store has confirmed storing it.
        """
        try:
            await self._store.evict([response])
        except StoreError as error:
            self._telemetry.failure("store", "read_path.evict_failed", error)
            return False
        if acknowledged:
            self._registry.lease(response.registrations, until_ms=0)
        return True

    async def again(self, response: CachedResponse, *, at_once: bool = False) -> None:
        """Evict an entry in the background, until the store answers or three retries have failed.

        at_once: begin without a pause, because storing was cancelled and no eviction was tried yet.
        """
        for pause_s in (0.0, *AGAIN_AFTER_S) if at_once else AGAIN_AFTER_S:
            await asyncio.sleep(pause_s)
            if await self.take(response, acknowledged=False):
                return
