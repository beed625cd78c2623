"""The Cache Sketch, server side: tells clients which of the copies they keep may be stale, in 14,600 bytes.

Clients keep responses until they expire and nobody can take them back. So they fetch this filter now and then (every Δ), and
revalidate whatever is in it. `memory` and `redis` implement `quaestor.ports.CacheSketch`.
"""

from quaestor.cache_sketch.memory import MemoryCacheSketch
from quaestor.cache_sketch.redis import RedisCacheSketch

__all__ = ["MemoryCacheSketch", "RedisCacheSketch"]
