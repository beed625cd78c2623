"""The Cache Sketch, server side: reports to clients which of the copies they keep may be stale, in 14,600 bytes.

Clients keep responses until they expire, and no server can take those copies back. Clients therefore fetch this filter every Δ,
and revalidate each copy that it names. `memory` and `redis` implement `quaestor.ports.CacheSketch`; the other modules do no I/O.
Names are imported at their first use: a client of the format, or a single process, does not load the Redis part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quaestor.first_use import names_at_first_use

if TYPE_CHECKING:
    from quaestor.cache_sketch.memory import MemoryCacheSketch
    from quaestor.cache_sketch.redis import RedisCacheSketch

__all__ = ["MemoryCacheSketch", "RedisCacheSketch"]

__getattr__ = names_at_first_use(
    globals(),
    {
        "quaestor.cache_sketch.memory": "MemoryCacheSketch",
        "quaestor.cache_sketch.redis": "RedisCacheSketch",
    },
)
