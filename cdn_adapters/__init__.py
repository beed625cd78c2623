"""CDNs that Quaestor can purge, each a `quaestor.ports.CdnAdapter`.

A provider is one small module that implements `Place`; `Delivery` makes an adapter of it (batches, pace, retries), and `FanOut`
one adapter of several.
"""

from cdn_adapters.akamai import Akamai
from cdn_adapters.answers import Accepted, Answer, Delivered, Pace, Rejected, Throttled
from cdn_adapters.azure_front_door import AzureFrontDoor
from cdn_adapters.batching import BatchLimits, Outcome, PurgeEvent
from cdn_adapters.bunny import Bunny
from cdn_adapters.capabilities import Capabilities, Cost, LifetimeField, Owner, Rate, TagField, Unit
from cdn_adapters.cloudflare import Cloudflare
from cdn_adapters.cloudfront import CloudFront
from cdn_adapters.delivery import Delivery
from cdn_adapters.fan_out import FanOut
from cdn_adapters.fastly import Fastly
from cdn_adapters.google_cloud_cdn import GoogleCloudCdn
from cdn_adapters.keycdn import KeyCdn
from cdn_adapters.memory import MemoryAdapter, MemoryCdn
from cdn_adapters.netlify import Netlify
from cdn_adapters.nginx import Nginx
from cdn_adapters.place import Connection, Place, Target
from cdn_adapters.provider_configuration import CACHES, HOSTED, provider_configuration
from cdn_adapters.souin import Souin
from cdn_adapters.squid import Squid
from cdn_adapters.tiers import Tiers
from cdn_adapters.traffic_server import TrafficServer
from cdn_adapters.varnish import VarnishAdapter
from cdn_adapters.vcl import varnish_vcl
from cdn_adapters.vercel import Vercel
from cdn_adapters.webhook import Webhook

__all__ = [
    "CACHES",
    "HOSTED",
    "Accepted",
    "Akamai",
    "Answer",
    "AzureFrontDoor",
    "BatchLimits",
    "Bunny",
    "Capabilities",
    "CloudFront",
    "Cloudflare",
    "Connection",
    "Cost",
    "Delivered",
    "Delivery",
    "FanOut",
    "Fastly",
    "GoogleCloudCdn",
    "KeyCdn",
    "LifetimeField",
    "MemoryAdapter",
    "MemoryCdn",
    "Netlify",
    "Nginx",
    "Outcome",
    "Owner",
    "Pace",
    "Place",
    "PurgeEvent",
    "Rate",
    "Rejected",
    "Souin",
    "Squid",
    "TagField",
    "Target",
    "Throttled",
    "Tiers",
    "TrafficServer",
    "Unit",
    "VarnishAdapter",
    "Vercel",
    "Webhook",
    "provider_configuration",
    "varnish_vcl",
]
