"""Squid as a reverse proxy: purges by URL, in one Squid."""

from __future__ import annotations

from pydantic import SecretStr

from quaestor.cdn_adapters.capabilities import URL, Capabilities, LifetimeField
from quaestor.cdn_adapters.purge_method import PurgeMethodPlace


class Squid(PurgeMethodPlace):
    """One Squid with the configuration of `quaestor cdn config squid`. Implements Place.

    address: base URL as this process reaches it, e.g. "http://10.0.0.5:3128". Raises ConfigurationError for anything else.
    token: the token in Squid's configuration.
    timeout_s: for one purge request.

    Squid knows no tags and cannot be emptied at once. Squid keeps answers that `Surrogate-Control` allows.
    """

    name = "squid"
    software = "Squid"
    capabilities = Capabilities(
        kinds=(URL,),
        # The number after the plus is the time for which an answer may be stale. Squid takes the shorter of both numbers for the
        # lifetime, so both are the same. The last word is Squid's name (`httpd_accel_surrogate_id`): other surrogates on the way
        # ignore it.
        lifetime_field=LifetimeField(name="surrogate-control", form="max-age={lives_s}+{lives_s};quaestor"),
    )

    def __init__(self, address: str, *, token: str | SecretStr, timeout_s: float = 2.0) -> None:
        super().__init__(address, token=token, timeout_s=timeout_s)
