"""Finishing of effects: claimed entries are evicted and purged, their claims settled, and the outcome is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from quaestor.invalidation.effects.cause import Cause
from quaestor.invalidation.effects.purging import Purging
from quaestor.invalidation.effects.settling import Settling
from quaestor.invalidation.effects.until_done import until_done
from quaestor.model import Dependent
from quaestor.observability.hooks import InvalidationDone
from quaestor.ports import CdnAdapter
from quaestor.read_path.local_store import EntryStorage
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.runtime.supervision.supervisor import Errands


class EffectsFinishing:
    """Finishes the effects of claimed entries. Use from one event loop.

    cdn: CDNs to purge.
    errands: run beside the caller.
    """

    def __init__(self, storage: EntryStorage, errands: Errands, process: ProcessContext) -> None:
        self.cdn: list[CdnAdapter] = []
        self.purging = Purging(self.cdn, telemetry=process.telemetry, clock=process.clock)
        self._store = storage.store
        self._settling = Settling(storage.index, process.telemetry, process.supervisor)
        self._errands = errands
        self._settings = process.settings
        self._telemetry = process.telemetry
        self._clock = process.clock

    async def stop(self) -> None:
        """End running effects; another process takes over unsettled claims."""
        await self._settling.stop()

    async def finish(
        self,
        dependents: Sequence[Dependent],
        left: Sequence[Dependent],
        outside: Sequence[Dependent],
        causes: Mapping[str, Cause],
        evicted_at_ms: int,
        gone: Callable[[], None] = lambda: None,
    ) -> None:
        """Evict, purge and settle claimed entries.

        left: entries that a store may still hold.
        outside: entries with copies in a CDN.
        gone: called when the entries are evicted and purged, or when the attempt ends.
        """
        purged_at_ms = None
        try:
            eviction = self._errands.start(self._evict(left)) if left else None
            purged = await self.purging.put(outside)
            if self.purging.remembers:  # the outbox remembers the purges, so no process needs the claims
                self._settle(dependents, eviction)
            if purged is not None:
                await purged()
                purged_at_ms = self._clock()
            if eviction is not None:
                evicted_at_ms = await eviction
        finally:
            gone()
        self._observe(dependents, causes, evicted_at_ms, purged_at_ms)
        if self.purging.remembers:
            return
        if purged is not None:
            # An answer that left before the invalidation may reach the CDN after the purge. Each tag belongs to one
            # registration, so this second purge cannot hit the copy that replaced it. The outbox repeats its purges by itself.
            await asyncio.sleep(self._settings.cdn.repurge_after_ms / 1000)
            again = await self.purging.put(outside)
            if again is not None:
                await again()
        self._settling.later(dependents)

    def _settle(self, dependents: Sequence[Dependent], eviction: asyncio.Task[int] | None) -> None:
        """Settle these claims once their entries are evicted."""

        def evicted(task: asyncio.Task[int]) -> None:
            if not task.cancelled() and task.exception() is None:
                self._settling.later(dependents)

        if eviction is None:
            self._settling.later(dependents)
        else:
            eviction.add_done_callback(evicted)

    async def _evict(self, dependents: Sequence[Dependent]) -> int:
        with self._telemetry.tracing.span("quaestor.evict", entries=len(dependents)):
            await until_done(self._telemetry, "store", lambda: self._store.evict(dependents))
        return self._clock()

    def _observe(
        self,
        dependents: Sequence[Dependent],
        causes: Mapping[str, Cause],
        evicted_at_ms: int,
        purged_at_ms: int | None,
    ) -> None:
        for dependent in dependents:
            known = (causes[i] for i in dependent.registrations if i in causes)
            cause = next((cause for cause in known if cause.written_at_ms is not None), None)
            if cause is None or cause.written_at_ms is None:
                continue  # withdrawn without a write, or a claim taken over, whose cause is unknown
            written_at_ms = cause.written_at_ms
            self._telemetry.invalidations.latency_s.observe(max(0, evicted_at_ms - written_at_ms) / 1000)
            if purged_at_ms is not None:
                self._telemetry.invalidations.purge_latency_s.observe(max(0, purged_at_ms - written_at_ms) / 1000)
            done = InvalidationDone(
                keys=(dependent.key,),
                written_at_ms=written_at_ms,
                refused_at_ms=cause.refused_at_ms,
                evicted_at_ms=evicted_at_ms,
                purged_at_ms=purged_at_ms,
                exact=cause.precision == "exact",
            )
            self._telemetry.hooks.invalidations.tell(done)
