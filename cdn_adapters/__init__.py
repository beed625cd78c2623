"""CDNs that Quaestor can purge: one module each, all of them `quaestor.ports.CdnAdapter`."""

from cdn_adapters.varnish import VarnishAdapter
from cdn_adapters.vcl import varnish_vcl

__all__ = ["VarnishAdapter", "varnish_vcl"]
