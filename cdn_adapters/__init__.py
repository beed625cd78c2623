"""CDNs that Quaestor can purge, each a `quaestor.ports.CdnAdapter`.

A provider is one small module that implements `Place`; `Delivery` makes an adapter of it (batches, pace, retries), and `FanOut`
one adapter of several.
"""

from cdn_adapters.batching import BatchLimits, Outcome, PurgeEvent
from cdn_adapters.delivery import Delivery
from cdn_adapters.fan_out import FanOut
from cdn_adapters.memory import MemoryAdapter, MemoryCdn
from cdn_adapters.place import Place, Target
from cdn_adapters.varnish import VarnishAdapter
from cdn_adapters.vcl import varnish_vcl

__all__ = [
    "BatchLimits",
    "Delivery",
    "FanOut",
    "MemoryAdapter",
    "MemoryCdn",
    "Outcome",
    "Place",
    "PurgeEvent",
    "Target",
    "VarnishAdapter",
    "varnish_vcl",
]
