"""CDNs that Quaestor can purge, each a `quaestor.ports.CdnAdapter`.

A provider is one small module that implements `Place`; `Delivery` makes an adapter of it (batches, pace, retries), and `FanOut`
one adapter of several.
"""

from cdn_adapters.answers import Accepted, Answer, Delivered, Pace, Rejected, Throttled
from cdn_adapters.batching import BatchLimits, Outcome, PurgeEvent
from cdn_adapters.capabilities import Capabilities, Cost, Owner, Rate, TagField, Unit
from cdn_adapters.delivery import Delivery
from cdn_adapters.fan_out import FanOut
from cdn_adapters.memory import MemoryAdapter, MemoryCdn
from cdn_adapters.place import Connection, Place, Target
from cdn_adapters.tiers import Tiers
from cdn_adapters.varnish import VarnishAdapter
from cdn_adapters.vcl import varnish_vcl

__all__ = [
    "Accepted",
    "Answer",
    "BatchLimits",
    "Capabilities",
    "Connection",
    "Cost",
    "Delivered",
    "Delivery",
    "FanOut",
    "MemoryAdapter",
    "MemoryCdn",
    "Outcome",
    "Owner",
    "Pace",
    "Place",
    "PurgeEvent",
    "Rate",
    "Rejected",
    "TagField",
    "Target",
    "Throttled",
    "Tiers",
    "Unit",
    "VarnishAdapter",
    "varnish_vcl",
]
