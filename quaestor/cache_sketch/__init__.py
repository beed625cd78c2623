"""The Cache Sketch, server side: reports to clients which of the copies they keep may be stale, in 14,600 bytes.

Clients keep responses until they expire, and no server can take those copies back. Clients therefore fetch this filter every Δ,
and revalidate each copy that it names. `memory` and `redis` implement `quaestor.ports.CacheSketch`; the other modules do no I/O.
Names are imported at their first use: a client of the format, or a single process, does not load the Redis part.
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
