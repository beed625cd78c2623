"""Souin, the cache of Caddy: purges by tag, in one Caddy.

API: github.com/darkweak/souin, read 2026-11 (1.7.9). Tested on its contract, not on Souin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.capabilities import TAG, Capabilities, LifetimeField, TagField
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.purge_method import PurgeMethodPlace

API: Final = "/souin-api/souin"
"""Default path of Souin's purge API."""
_KEPT: Final = (b"souin-cache-control", b"public")
"""Field that Souin prefers to CDN-Cache-Control. Without a lifetime in the field, Souin uses Expires. From a max-age Souin
would not subtract the time that an answer has spent in the application's own cache.
"""


class Souin(PurgeMethodPlace):
    """One Caddy with the configuration of `quaestor cdn config souin`. Implements Place.

    address: base URL as this process reaches it, e.g. "http://10.0.0.5:8080". Raises ConfigurationError for anything else.
    token: the token in Caddy's configuration.
    timeout_s: for one purge request.

    Purges go by tag alone. A purge of a URL takes a pattern in one version of Souin, and the key of one variant in another.
    Souin keeps answers that `Souin-Cache-Control` allows, until `Expires`.
    """

    name = "souin"
    software = "Souin"
    taken = (204,)
    capabilities = Capabilities(
        kinds=(TAG,),
        batch={TAG: 100},
        batch_bytes=4_000,
        tag_field=TagField(name="surrogate-key", separator=", "),
        lifetime_field=LifetimeField(name="expires", form="{until_date}"),
    )

    def __init__(self, address: str, *, token: str | SecretStr, timeout_s: float = 2.0) -> None:
        super().__init__(address, token=token, timeout_s=timeout_s)

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """See Place."""
        return [*super().response_headers(tags), _KEPT]

    def requests(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> list[httpx.Request]:
        """Return the request that purges a batch."""
        tags = ", ".join(target.value for target in targets)
        return [self.request(client, {"surrogate-key": tags}, path=API)]
