"""The Cache Sketch in this process's memory, lost with the process. A new process therefore saturates its sketch first, for
the copies that an earlier process handed out.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from quaestor.cache_sketch.expiring import ExpiringSketch
from quaestor.cache_sketch.limits import Limits
from quaestor.cache_sketch.partitions import key_of
from quaestor.cache_sketch.sizing import DEFAULT, Geometry
from quaestor.ports import SketchState


class MemoryCacheSketch:
    """Implements CacheSketch in memory. May be used from several threads and event loops; never raises SketchError.

    epoch: 16 hex digits that no other process has had. Empty: none, and the copies of an earlier process look like its own.
    """

    def __init__(self, *, geometry: Geometry = DEFAULT, limits: Limits | None = None, epoch: str = "") -> None:
        self.epoch = epoch
        self._sketch = ExpiringSketch(geometry, limits)
        self._lock = threading.Lock()
        self._off = False

    async def report_read(self, resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        """See CacheSketch."""
        key = key_of(resource)
        with self._lock:
            self._sketch.report_read(key, expires_at_ms=expires_at_ms, now_ms=now_ms)

    async def report_write(self, resources: Sequence[str], *, now_ms: int) -> list[int]:
        """See CacheSketch."""
        keys = [key_of(resource) for resource in resources]
        with self._lock:
            return self._sketch.report_write(keys, now_ms=now_ms)

    async def saturate(self, until_ms: int, *, earlier: bool = False) -> None:
        """See CacheSketch."""
        with self._lock:
            self._sketch.saturate(until_ms, earlier=earlier and bool(self.epoch))

    async def snapshot(self, *, now_ms: int, partition: str = "") -> bytes:
        """See CacheSketch."""
        while True:
            with self._lock:
                if not self._sketch.sweep(now_ms):
                    return self._sketch.snapshot(now_ms, partition)
            await asyncio.sleep(0)  # thousands of keys became due at once: requests run between the steps

    async def state(self, *, now_ms: int) -> SketchState:
        """See CacheSketch."""
        with self._lock:
            self._sketch.sweep(now_ms)
            return SketchState(off=self._off, partitions=self._sketch.partitions, removed=self._sketch.removed)

    async def switch(self, *, off: bool) -> None:
        """See CacheSketch."""
        self._off = off
