"""The eviction of an entry that must not be served after all, or of which nobody knows any more whether it may be.

What a store did not acknowledge may still arrive: the server was busy, the packet was late. It then lies there for as long as its
lifetime, and other processes will find it. So as long as that may be, its registrations go on guarding it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from quaestor.errors import StoreError
from quaestor.model import CachedResponse
from quaestor.observability.event_log import EventLog
from quaestor.ports import QueryRegistry, ResponseStore

AGAIN_AFTER_S: Final = (1.0, 2.0, 4.0)
"""How long after a failure the eviction is tried again: well before anybody has forgotten that a registration has died."""


class EvictionRetry:
    """Evicts single entries, again if the store does not answer; one per read path. Use from one event loop."""

    def __init__(self, *, store: ResponseStore, registry: QueryRegistry, telemetry: EventLog) -> None:
        self._store = store
        self._registry = registry
        self._telemetry = telemetry

    async def take(self, response: CachedResponse, *, acknowledged: bool) -> bool:
        """Evict an entry. False: the store did not answer; call again().

        acknowledged: the store said that it had it.
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
        """Evict an entry without anybody waiting for it, until the store answers or has not three times.

        at_once: it was not tried yet, because whoever stored it was cancelled.
        """
        for pause_s in (0.0, *AGAIN_AFTER_S) if at_once else AGAIN_AFTER_S:
            await asyncio.sleep(pause_s)
            if await self.take(response, acknowledged=False):
                return
