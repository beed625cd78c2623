"""The Varnish configuration that `VarnishAdapter` relies on, filled in for one application."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from importlib import resources

from pydantic import SecretStr

from quaestor.errors import ConfigurationError

LOOPBACK = ("127.0.0.1", "::1")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_STRONG_READS = """\
    # Past this cache, for a read that has to see every write. Kept copies stay, so no client can empty the cache that way. With a
    # condition it is a revalidation, which this cache answers: it was purged.
    std.collect(req.http.cache-control);
    if (!req.http.if-none-match && !req.http.if-modified-since
        && req.http.cache-control ~ "(?i)(^|[\\s,])no-cache\\s*(,|$)"
        && !vsthrottle.is_denied("quaestor:" + client.identity, %d, 1s)) {
        set req.http.quaestor-cache = "request";
        return (pass);
    }
"""
_MOST_STRONG_READS = 1_000_000
_STRIPPED = "unset resp.http.xkey;\n    unset resp.http.cdn-cache-control;\n    unset resp.http.quaestor-live;"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{8,}")


def varnish_vcl(
    backend_host: str,
    backend_port: int,
    *,
    purge_token: str | SecretStr | None = None,
    purgers: Sequence[str] = LOOPBACK,
    grace_s: int = 0,
    strong_reads_per_s: int = 50,
    fills_caches: bool = False,
) -> str:
    """Return the VCL for `varnishd -f`: it caches as CDN-Cache-Control allows, and purges by tag and by URL.

    backend_host: name or address of the application, as Varnish reaches it.
    backend_port: its TCP port.
    purge_token: the token of `VarnishAdapter(token=...)`; at least 8 of A-Z a-z 0-9 . _ ~ + / = -. Without a token, `purgers`
        alone decides, so nothing on those hosts may forward strangers' requests to Varnish (a TLS terminator does).
    purgers: addresses or networks that may purge. Other than this host, they need a token.
    grace_s: for how long an expired or softly purged object may be served while it is fetched again. Above 0, stale answers are
        served, also after an ordinary expiry.
    strong_reads_per_s: bound of the `Cache-Control: no-cache` requests of one client's address that reach the application in a
        second. Requests with a condition (revalidations) never pass. A passed request leaves the kept object in place. Requests
        above the bound are answered like any other request, and `Cache-Status` contains `Varnish; hit`; 0: all are. Behind a TLS
        terminator that does not speak the PROXY protocol all clients have one address.
    fills_caches: other caches of yours fetch from this one (it is a shield), so it passes on the fields for caches: tags and
        CDN-Cache-Control. No other client may be able to reach it. Its answers carry their Age.

    Raises ConfigurationError for values that cannot stand in VCL.
    """
    if not _HOST.fullmatch(backend_host):
        raise ConfigurationError(f"backend_host {backend_host!r} is not a host name or address")
    if not 0 < backend_port < 65_536:
        raise ConfigurationError(f"backend_port must be a TCP port, not {backend_port}")
    token = purge_token.get_secret_value() if isinstance(purge_token, SecretStr) else purge_token
    if token is not None and not _TOKEN.fullmatch(token):
        raise ConfigurationError("purge_token must have at least 8 characters, all of A-Z a-z 0-9 . _ ~ + / = -")
    if token is None and set(purgers) - set(LOOPBACK):
        raise ConfigurationError(f"purgers {tuple(purgers)} are not only this host: give a purge_token too")
    if grace_s < 0:
        raise ConfigurationError(f"grace_s must not be negative: {grace_s}")
    if not 0 <= strong_reads_per_s <= _MOST_STRONG_READS:
        raise ConfigurationError(
            f"strong_reads_per_s must lie in 0 (none) to {_MOST_STRONG_READS}, not {strong_reads_per_s}"
        )
    text = resources.files(__package__).joinpath("varnish.vcl").read_text()
    places = {
        "@backend_host@": backend_host,
        "@backend_port@": str(backend_port),
        "@purgers@": "\n".join(_acl_entry(purger) for purger in purgers),
        "@token_check@": "" if token is None else f' || req.http.quaestor-purge-token != "{token}"',
        "@grace_s@": str(grace_s),
        "@strong_reads@": _STRONG_READS % strong_reads_per_s if strong_reads_per_s else "",
        "@kept_fields@": "" if fills_caches else _STRIPPED,
    }
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def _acl_entry(purger: str) -> str:
    try:
        network = ipaddress.ip_network(purger, strict=False)
    except ValueError as error:
        raise ConfigurationError(f"{purger!r} in purgers is not an IP address or network") from error
    return f'    "{network.network_address}"/{network.prefixlen};'
