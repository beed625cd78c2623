"""Purging of CDNs: what was handed out of what an invalidation concerns, in all of them at once, until acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from quaestor.clock import Clock
from quaestor.errors import CdnError
from quaestor.model import Dependent
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CdnAdapter

RETRY_S: Final = 0.5
"""First pause before a purge that failed is repeated; it doubles each time."""
_LONGEST_PAUSE_S: Final = 10.0


class Purging:
    """Purging of some CDNs. Use from one event loop.

    cdn: the CDNs; others may be added later.
    """

    def __init__(self, cdn: Sequence[CdnAdapter], *, telemetry: Telemetry, clock: Clock) -> None:
        self._cdn = cdn
        self._telemetry = telemetry
        self._clock = clock

    async def purge(self, dependents: Sequence[Dependent]) -> int | None:
        """Purge these; returns when every CDN has acknowledged: that moment. None if there was nothing to purge."""
        if not dependents or not self._cdn:
            return None
        tags = tuple(dict.fromkeys(d.tags[0] for d in dependents if d.tags))
        urls = tuple(dict.fromkeys(url for d in dependents for url in d.urls))
        until_ms = max(d.copies_until_ms for d in dependents)
        with self._telemetry.tracing.span("quaestor.purge", tags=len(tags), urls=len(urls)):
            await self._purge_all(tags, urls, until_ms)
        return self._clock()

    async def purge_tag(self, tag: str, *, until_ms: int) -> None:
        """Purge whatever carries this tag; no copy is alive after until_ms."""
        await self._purge_all((tag,), (), until_ms)

    async def _purge_all(self, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> None:
        async with asyncio.TaskGroup() as purges:
            for adapter in self._cdn:
                purges.create_task(self._purge(adapter, tags, urls, until_ms))

    async def _purge(self, adapter: CdnAdapter, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> None:
        """Purge until it is acknowledged, or until every copy is dead anyway."""
        pause_s = RETRY_S
        while True:
            try:
                await adapter.purge(tags=tags, urls=urls)
                self._telemetry.invalidations.purges.labels(adapter.name, "done").inc()
                return
            except CdnError as error:
                self._telemetry.invalidations.purges.labels(adapter.name, "failed").inc()
                self._telemetry.failure("cdn", "effects.purge_failed", error, cdn=adapter.name)
                if self._clock() > until_ms:
                    return
                await asyncio.sleep(error.retry_after_s or pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
