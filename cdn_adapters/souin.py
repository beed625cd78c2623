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
"""Where Souin takes purges, if its configuration does not say otherwise."""
_KEPT: Final = (b"souin-cache-control", b"public")
"""Counts for Souin before CDN-Cache-Control. It names no lifetime, so that Souin goes by Expires: from a max-age it does not take
the time that an answer has spent in the application's own cache."""


class Souin(PurgeMethodPlace):
    """One Caddy with the configuration of `quaestor cdn config souin`. Implements Place.

    address: base URL as this process reaches it, e.g. "http://10.0.0.5:8080". Raises ConfigurationError for anything else.
    token: the one in its configuration.
    timeout_s: for one purge request.

    By tag alone: whether a purge of a URL takes a pattern, or the key of one variant, differs from version to version. It keeps
    what `Souin-Cache-Control` lets it keep, until `Expires`.
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
        """The request that purges a batch."""
        tags = ", ".join(target.value for target in targets)
        return [self.request(client, {"surrogate-key": tags}, path=API)]
