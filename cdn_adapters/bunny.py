"""Bunny: purges of a pull zone by tag, or of a URL; one purge a request.

API: docs.bunny.net/cdn/purge-cache; limits read 2026-11. Tested on its contract, not on Bunny.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered
from quaestor.cdn_adapters.capabilities import TAG, URL, Capabilities, Owner, Rate, TagField, Unit
from quaestor.cdn_adapters.hosted import json_object, no_success
from quaestor.cdn_adapters.numbered_zone import NumberedZone
from quaestor.cdn_adapters.place import Target


class Bunny(NumberedZone):
    """A pull zone of Bunny. Implements Place.

    zone: its number.
    key: the account's API key.
    account: name of the account whose purges are limited together; by default the zone.
    tiered: whether purges are repeated; for a zone with Origin Shield or Perma-Cache.
    base_url, timeout_s: of the API.
    """

    name = "bunny"

    def __init__(
        self,
        zone: int,
        *,
        key: str | SecretStr,
        account: str | None = None,
        tiered: bool = False,
        base_url: str = "https://api.bunny.net",
        timeout_s: float = 10.0,
    ) -> None:
        super().__init__(zone, key=key, base_url=base_url, timeout_s=timeout_s)
        self.capabilities = Capabilities(
            kinds=(TAG, URL),
            tag_field=TagField(name="cdn-tag", separator=",", budget_bytes=1_024, max_tag_bytes=256),
            rates=(
                Rate(bucket=f"bunny/{account or zone}", owner=Owner.ACCOUNT, per_s=5, burst=120, unit=Unit.TARGET),
            ),
            effective_within_ms=2_000,
            tiered=tiered,
        )  # fmt: skip

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace. A URL is purged exactly: without `exactPath` a URL that ends in `/` would be a prefix."""
        fields = {"accesskey": self._key.get_secret_value()}
        value = targets[0].value
        if targets[0].by == TAG:
            return self._request("POST", f"/pullzone/{self._zone}/purgeCache", {"CacheTag": value}, fields)
        return self._request("POST", f"/purge?url={quote(value, safe='')}&async=false&exactPath=true", None, fields)

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `Message`."""
        return str(json_object(response).get("Message") or response.text)

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: 204, or 200, without a body."""
        return no_success(self, response) if response.content.strip() else Delivered()
