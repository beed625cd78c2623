"""Squid as a reverse proxy: purges by URL, in one Squid."""

from __future__ import annotations

from pydantic import SecretStr

from quaestor.cdn_adapters.capabilities import URL, Capabilities, LifetimeField
from quaestor.cdn_adapters.purge_method import PurgeMethodPlace


class Squid(PurgeMethodPlace):
    """One Squid with the configuration of `quaestor cdn config squid`. Implements Place.

    address: base URL as this process reaches it, e.g. "http://10.0.0.5:3128". Raises ConfigurationError for anything else.
    token: the one in its configuration.
    timeout_s: for one purge request.

    It knows no tags and cannot be emptied at once. It keeps what `Surrogate-Control` lets it keep.
    """

    name = "squid"
    software = "Squid"
    capabilities = Capabilities(
        kinds=(URL,),
        # What follows the plus is for how long it may be stale; Squid takes the shorter of both for the lifetime, so it is said
        # twice. The last word is its name (`httpd_accel_surrogate_id`): other surrogates on the way are not meant.
        lifetime_field=LifetimeField(name="surrogate-control", form="max-age={lives_s}+{lives_s};quaestor"),
    )

    def __init__(self, address: str, *, token: str | SecretStr, timeout_s: float = 2.0) -> None:
        super().__init__(address, token=token, timeout_s=timeout_s)
