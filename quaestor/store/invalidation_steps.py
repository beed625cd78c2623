"""Effects of an invalidation on index, sketch and store, one after the other, in any places."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.ports import CacheSketch, ClaimedDependent, DependencyIndex, Guarded, ResponseStore


class StepByStep:
    """Shared invalidation for any three parts, one after the other. Implements SharedInvalidation.

    After a failure behind the claim, the claim is reclaimed.
    """

    def __init__(self, *, index: DependencyIndex, sketch: CacheSketch, store: ResponseStore) -> None:
        self._index = index
        self._sketch = sketch
        self._store = store

    async def claim_and_evict(
        self, registration_ids: Sequence[str], entries: Sequence[Guarded], *, now_ms: int
    ) -> list[ClaimedDependent]:
        dependents = await self._index.claim(registration_ids, now_ms=now_ms)
        resources = [dependent.resource for dependent in dependents]
        lifetimes_ms = await self._sketch.report_write(resources, now_ms=now_ms) if resources else []
        await self._store.evict([*entries, *dependents])
        return [
            ClaimedDependent(dependent=dependent, outside_ms=outside_ms, evicted=True)
            for dependent, outside_ms in zip(dependents, lifetimes_ms, strict=True)
        ]
