"""The Varnish configuration that `VarnishAdapter` talks to, filled in for one application."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from importlib import resources

from quaestor.errors import ConfigurationError

LOOPBACK = ("127.0.0.1", "::1")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_STRIPPED = "unset resp.http.xkey;\n    unset resp.http.cdn-cache-control;"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{8,}")


def varnish_vcl(
    backend_host: str,
    backend_port: int,
    *,
    purge_token: str | None = None,
    purgers: Sequence[str] = LOOPBACK,
    grace_s: int = 0,
    fills_caches: bool = False,
) -> str:
    """VCL for `varnishd -f`: keeps what CDN-Cache-Control says and as long as it says, purges by tag and by URL.

    backend_host: name or address of the application, as Varnish reaches it.
    backend_port: its TCP port.
    purge_token: what `VarnishAdapter(token=...)` sends; at least 8 of A-Z a-z 0-9 . _ ~ + / = -. Without one,
        `purgers` alone decides, so nothing on those hosts may forward strangers' requests to Varnish (a TLS
        terminator does).
    purgers: addresses or networks that may purge. Other than this host, they need a token.
    grace_s: for how long an expired or softly purged object may be served while it is fetched again. Above 0, stale
        answers are served, also after an ordinary expiry.
    fills_caches: other caches of yours ask this one (it is a shield), so it leaves them the fields for caches: tags and
        CDN-Cache-Control. Nobody else may be able to ask it. Its answers carry their Age.

    Raises ConfigurationError for values that cannot stand in VCL.
    """
    if not _HOST.fullmatch(backend_host):
        raise ConfigurationError(f"backend_host {backend_host!r} is not a host name or address")
    if not 0 < backend_port < 65_536:
        raise ConfigurationError(f"backend_port must be a TCP port, not {backend_port}")
    if purge_token is not None and not _TOKEN.fullmatch(purge_token):
        raise ConfigurationError("purge_token must have at least 8 characters, all of A-Z a-z 0-9 . _ ~ + / = -")
    if purge_token is None and set(purgers) - set(LOOPBACK):
        raise ConfigurationError(f"purgers {tuple(purgers)} are not only this host: give a purge_token too")
    if grace_s < 0:
        raise ConfigurationError(f"grace_s must not be negative: {grace_s}")
    text = resources.files(__package__).joinpath("varnish.vcl").read_text()
    places = {
        "@backend_host@": backend_host,
        "@backend_port@": str(backend_port),
        "@purgers@": "\n".join(_acl_entry(purger) for purger in purgers),
        "@token_check@": "" if purge_token is None else f' || req.http.quaestor-purge-token != "{purge_token}"',
        "@grace_s@": str(grace_s),
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
