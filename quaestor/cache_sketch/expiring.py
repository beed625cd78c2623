"""The Cache Sketch without I/O: the resources that may still have a stale copy somewhere that nobody can purge.

Expiring counting Bloom filter, after Quaestor/Orestes (Wingerath's thesis, section 5.1). What is kept: the latest expiry of
the copies handed out of each resource; the resources written meanwhile, each until the copies that existed at its last write
are dead; their counting filter. Unlike the original, a repeated write only moves a resource's removal back, so counters count
resources, and memory is bounded.

Time is an argument. If it runs backwards, nothing is removed early.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.deadlines import Deadlines
from quaestor.cache_sketch.limits import Limits
from quaestor.cache_sketch.sizing import DEFAULT, Geometry


class ExpiringSketch:
    """Expiring counting Bloom filter of the resources that may have a stale copy somewhere.

    Keys are digests (`wire_format.digest`). Every method leaves a consistent state; O(log n) a key. Not thread-safe.
    """

    __slots__ = ("_filter", "_limits", "_reads", "_saturated_until_ms", "_stale", "_untracked_until_ms", "geometry")

    def __init__(self, geometry: Geometry = DEFAULT, limits: Limits | None = None) -> None:
        self.geometry = geometry
        self._limits = limits or Limits()
        self._reads = Deadlines()
        self._stale = Deadlines()
        self._filter = CountingFilter(geometry)
        self._untracked_until_ms = 0
        self._saturated_until_ms = 0

    @property
    def tracked(self) -> int:
        """Resources whose living copies are known one by one (some may be dead and not swept yet)."""
        return len(self._reads)

    @property
    def stale(self) -> int:
        """Resources in the filter."""
        return len(self._stale)

    def report_read(self, key: bytes, *, expires_at_ms: int, now_ms: int) -> None:
        """See CacheSketch."""
        self._sweep(now_ms, self._limits.sweep)
        if expires_at_ms <= now_ms:
            return
        if key in self._reads or len(self._reads) < self._limits.max_reads:
            self._reads.extend(key, expires_at_ms)
        else:
            self._untracked_until_ms = max(self._untracked_until_ms, expires_at_ms)

    def report_write(self, keys: Sequence[bytes], *, now_ms: int) -> list[int]:
        """See CacheSketch."""
        self._sweep(now_ms, self._limits.sweep)
        return [self._written(key, now_ms) for key in keys]

    def _written(self, key: bytes, now_ms: int) -> int:
        alive_until_ms = max(self._reads.get(key), self._untracked_until_ms)
        if alive_until_ms > now_ms:
            if key in self._stale or len(self._stale) < self._limits.max_stale:
                if self._stale.extend(key, alive_until_ms):
                    self._filter.add(key)
            else:
                self._saturated_until_ms = max(self._saturated_until_ms, alive_until_ms)
        return max(0, max(alive_until_ms, self._saturated_until_ms) - now_ms)

    def saturate(self, until_ms: int) -> None:
        """See CacheSketch."""
        self._saturated_until_ms = max(self._saturated_until_ms, until_ms)

    def sweep(self, now_ms: int) -> bool:
        """Remove some of what is dead. Returns whether there is more: a snapshot taken then has needless keys in it."""
        self._sweep(now_ms, self._limits.snapshot_sweep)
        return self._stale.any_due(now_ms)

    def snapshot(self, now_ms: int) -> bytes:
        """The flat filter as it is. O(size of the filter)."""
        if now_ms < self._saturated_until_ms:
            return wire_format.saturated(self.geometry)
        return wire_format.encode(self.geometry, keys=len(self._stale), bits=self._filter.bits)

    def _sweep(self, now_ms: int, limit: int) -> None:
        self._reads.pop_due(now_ms, limit=limit)
        for key in self._stale.pop_due(now_ms, limit=limit):
            self._filter.remove(key)
