"""Varnish adapter: purges by tag (xkey) or by URL, in every node, with the configuration that `varnish_vcl` makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import SecretStr

from quaestor.cdn_adapters.batching import BatchLimits, PurgeEvent
from quaestor.cdn_adapters.delivery import Delivery
from quaestor.cdn_adapters.fan_out import FanOut
from quaestor.cdn_adapters.varnish_node import VarnishNode
from quaestor.errors import ConfigurationError


class VarnishAdapter(FanOut):
    """CdnAdapter for one or more Varnish nodes; a purge is done when every node has acknowledged it.

    urls: base URL of each node as this process reaches it, e.g. "http://10.0.0.5:6081".
    soft: expire objects instead of removing them. Only of use with a `grace_s` above 0; each object then serves about one stale
        answer more.
    token: the `purge_token` given to varnish_vcl.
    tags: False for a Varnish without xkey, or one that fills caches without tags. Objects are then purged by URL, all by a ban.
    timeout_s: for one purge request.
    limits: batching, pace and retries, for each node.
    tiered: whether one of these nodes fills from another, so each purge is repeated a moment later: see docs/cdn.md.
    observe: called with a PurgeEvent after every batch, for metrics.

    Objects are purged by tag if there are tags, otherwise by URL. URLs must be absolute and spelled as clients spell them:
    Varnish finds objects by Host and target. All variants (Vary) are purged. A purge misses objects that are still being
    fetched. After a CdnError a purge is kept and repeated until every node has taken it.

    Raises ConfigurationError for an address that is not an http(s) URL.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        soft: bool = False,
        token: str | SecretStr | None = None,
        tags: bool = True,
        timeout_s: float = 2.0,
        tiered: bool = False,
        limits: BatchLimits | None = None,
        observe: Callable[[PurgeEvent], None] = lambda event: None,
    ) -> None:
        addresses = [urls] if isinstance(urls, str) else urls
        if not addresses:
            raise ConfigurationError("VarnishAdapter needs the URL of at least one Varnish")
        nodes = [
            VarnishNode(address, soft=soft, token=token, tags=tags, timeout_s=timeout_s, tiered=tiered)
            for address in addresses
        ]
        super().__init__("varnish", [Delivery(node, limits=limits, observe=observe) for node in nodes])
