"""The Cache Sketch without I/O: the resources that may have a stale copy in a cache that no server can purge.

Expiring counting Bloom filter, after Quaestor/Orestes (Wingerath's thesis, section 5.1). The sketch keeps the latest expiry of
the copies that were handed out of each resource. For each resource that was written meanwhile, it keeps a removal time: by then
the copies that existed at the last write are dead. A counting filter holds those resources. Unlike in the original, a repeated
write only moves a resource's removal back: counters count resources, and memory is bounded.

Time is an argument. If time runs backwards, nothing is removed early. A resource that was removed at the later time may however
have living copies at the earlier one. Until the clock reaches the later time again, everything is therefore reported as changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.cache_sketch import wire_format
from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.deadlines import Deadlines
from quaestor.cache_sketch.limits import CLOCK_GRACE_MS, Limits
from quaestor.cache_sketch.partitions import MAX_PARTITIONS
from quaestor.cache_sketch.sizing import DEFAULT, Geometry
from quaestor.cache_sketch.wire_format import DIGEST_BYTES


class ExpiringSketch:
    """Expiring counting Bloom filter of the resources that may have a stale copy somewhere.

    Keys are digests; a key in a partition is a digest followed by the partition's token (`partitions.key_of`).

    Every method leaves a consistent state, and takes O(log n) a key. Not thread-safe.
    """

    __slots__ = (
        "_earlier_until_ms", "_latest_ms", "_limits", "_partitions", "_reads", "_saturated_until_ms", "_stale", "_union",
        "_untracked_until_ms", "geometry", "removed",
    )  # fmt: skip

    def __init__(self, geometry: Geometry = DEFAULT, limits: Limits | None = None) -> None:
        self.geometry = geometry
        self._limits = limits or Limits()
        self._reads = Deadlines()
        self._stale = Deadlines()
        self._union = CountingFilter(geometry)
        self._partitions: dict[bytes, CountingFilter] = {}
        self.removed = 0
        """Number of keys that have left the filter since the sketch was made."""
        self._latest_ms = 0
        self._untracked_until_ms = 0
        self._saturated_until_ms = 0
        self._earlier_until_ms = 0

    @property
    def tracked(self) -> int:
        """Number of resources whose living copies are known one by one (some may be dead and not swept yet)."""
        return len(self._reads)

    @property
    def stale(self) -> int:
        """Number of resources in the filter."""
        return len(self._stale)

    @property
    def partitions(self) -> frozenset[str]:
        """Tokens of the partitions with a filter of their own."""
        return frozenset(token.decode() for token in self._partitions)

    def report_read(self, key: bytes, *, expires_at_ms: int, now_ms: int) -> None:
        """See CacheSketch."""
        self._sweep(now_ms, self._limits.sweep)
        if expires_at_ms <= now_ms:
            return
        if self._earlier_until_ms:
            self._filters(key)  # makes the partition known from now on: the union in its place would name too many keys
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
                    for filter_ in self._filters(key):
                        filter_.add(key[:DIGEST_BYTES])
            else:
                self._saturated_until_ms = max(self._saturated_until_ms, alive_until_ms)
        return max(0, max(alive_until_ms, self._everything_until_ms(now_ms), self._earlier_until_ms) - now_ms)

    def _everything_until_ms(self, now_ms: int) -> int:
        """Time until which everything counts as changed, also after the clock was set back by more than clocks may differ."""
        behind = now_ms + CLOCK_GRACE_MS < self._latest_ms
        return max(self._saturated_until_ms, self._latest_ms if behind else 0)

    def saturate(self, until_ms: int, *, earlier: bool = False) -> None:
        """See CacheSketch."""
        if earlier:
            self._earlier_until_ms = max(self._earlier_until_ms, until_ms)
        else:
            self._saturated_until_ms = max(self._saturated_until_ms, until_ms)

    def sweep(self, now_ms: int) -> bool:
        """Remove some dead entries. Returns whether more are left: a snapshot taken then contains needless keys."""
        self._sweep(now_ms, self._limits.snapshot_sweep)
        return self._stale.any_due(now_ms)

    def snapshot(self, now_ms: int, partition: str = "") -> bytes:
        """Flat filter of a partition as it is now; without a partition, the union of all. O(size of the filter)."""
        if now_ms < self._everything_until_ms(now_ms):
            return wire_format.saturated(self.geometry)
        filter_ = self._partitions.get(partition.encode())
        if filter_ is None:
            if now_ms < self._earlier_until_ms:
                return wire_format.saturated(self.geometry)
            filter_ = self._union
        return wire_format.encode(self.geometry, keys=filter_.keys, bits=filter_.bits)

    def _sweep(self, now_ms: int, limit: int) -> None:
        self._latest_ms = max(self._latest_ms, now_ms)
        self._reads.pop_due(now_ms, limit=limit)
        for key in self._stale.pop_due(now_ms, limit=limit):
            for filter_ in self._filters(key):
                filter_.remove(key[:DIGEST_BYTES])
            self.removed += 1

    def _filters(self, key: bytes) -> tuple[CountingFilter, ...]:
        """Filters that contain a key: the union, and the filter of its partition. Each call returns the same filters, because no
        filter is added after MAX_PARTITIONS."""
        token = key[DIGEST_BYTES:]
        if not token:
            return (self._union,)
        own = self._partitions.get(token)
        if own is None:
            if len(self._partitions) >= MAX_PARTITIONS:
                return (self._union,)
            own = self._partitions[token] = CountingFilter(self.geometry)
        return (self._union, own)
