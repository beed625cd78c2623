"""nginx with the module cache_purge (Debian: libnginx-mod-http-cache-purge): purges by URL, in one nginx."""

from __future__ import annotations

from pydantic import SecretStr

from quaestor.cdn_adapters.capabilities import URL, Capabilities, LifetimeField
from quaestor.cdn_adapters.purge_method import PurgeMethodPlace


class Nginx(PurgeMethodPlace):
    """One nginx with the configuration of `quaestor cdn config nginx`. Implements Place.

    address: base URL as this process reaches it, e.g. "http://10.0.0.5:8080". Raises ConfigurationError for anything else.
    token: the token in nginx's configuration.
    timeout_s: for one purge request.

    nginx knows no tags and cannot be emptied at once. Answers are kept as `X-Accel-Expires` allows, until a moment by nginx's
    clock.
    """

    name = "nginx"
    software = "nginx"
    capabilities = Capabilities(kinds=(URL,), lifetime_field=LifetimeField(name="x-accel-expires", form="@{until_s}"))

    def __init__(self, address: str, *, token: str | SecretStr, timeout_s: float = 2.0) -> None:
        super().__init__(address, token=token, timeout_s=timeout_s)
