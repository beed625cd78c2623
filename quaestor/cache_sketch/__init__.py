"""The Cache Sketch, server side: tells clients which of the copies they keep may be stale, in 14,600 bytes.

Clients keep responses until they expire and nobody can take them back. So they fetch this filter now and then (every Δ), and
revalidate whatever is in it. `memory` and `redis` implement `quaestor.ports.CacheSketch`; everything else is without I/O.
Names are imported when they are first used: a client of the format, or a single process, does not pay for the Redis part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quaestor.cache_sketch.memory import MemoryCacheSketch
    from quaestor.cache_sketch.redis import RedisCacheSketch

__all__ = ["MemoryCacheSketch", "RedisCacheSketch"]

_HOMES = {
    "MemoryCacheSketch": "quaestor.cache_sketch.memory",
    "RedisCacheSketch": "quaestor.cache_sketch.redis",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
