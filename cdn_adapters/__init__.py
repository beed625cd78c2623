"""CDNs that Quaestor can purge, each a `quaestor.ports.CdnAdapter`.

Each provider is a small module that implements `Place`. `Delivery` turns a place into an adapter with batches, pace and retries.
`FanOut` joins several adapters into one.
"""

from quaestor.cdn_adapters.akamai import Akamai
from quaestor.cdn_adapters.answers import Accepted, Answer, Delivered, Pace, Rejected, Throttled
from quaestor.cdn_adapters.azure_front_door import AzureFrontDoor
from quaestor.cdn_adapters.batching import BatchLimits, Outcome, PurgeEvent
from quaestor.cdn_adapters.bunny import Bunny
from quaestor.cdn_adapters.capabilities import Capabilities, Cost, LifetimeField, Owner, Rate, TagField, Unit
from quaestor.cdn_adapters.cloudflare import Cloudflare
from quaestor.cdn_adapters.cloudfront import CloudFront
from quaestor.cdn_adapters.delivery import Delivery
from quaestor.cdn_adapters.fan_out import FanOut
from quaestor.cdn_adapters.fastly import Fastly
from quaestor.cdn_adapters.google_cloud_cdn import GoogleCloudCdn
from quaestor.cdn_adapters.keycdn import KeyCdn
from quaestor.cdn_adapters.memory import MemoryAdapter, MemoryCdn
from quaestor.cdn_adapters.netlify import Netlify
from quaestor.cdn_adapters.nginx import Nginx
from quaestor.cdn_adapters.place import Connection, Place, Target
from quaestor.cdn_adapters.provider_configuration import CACHES, HOSTED, provider_configuration
from quaestor.cdn_adapters.souin import Souin
from quaestor.cdn_adapters.squid import Squid
from quaestor.cdn_adapters.tiers import Tiers
from quaestor.cdn_adapters.traffic_server import TrafficServer
from quaestor.cdn_adapters.varnish import VarnishAdapter
from quaestor.cdn_adapters.vcl import varnish_vcl
from quaestor.cdn_adapters.vercel import Vercel
from quaestor.cdn_adapters.webhook import Webhook

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
