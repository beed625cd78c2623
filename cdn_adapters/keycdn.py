"""KeyCDN: purges of a zone by URL or by tag.

API: www.keycdn.com/api; limits read 2026-11. Tested on its contract, not on KeyCDN.
"""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered, Rejected
from quaestor.cdn_adapters.capabilities import TAG, URL, Capabilities, Owner, Rate, TagField
from quaestor.cdn_adapters.hosted import json_object, no_success
from quaestor.cdn_adapters.numbered_zone import NumberedZone
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import without


class KeyCdn(NumberedZone):
    """A zone of KeyCDN. Implements Place.

    zone: its number.
    key: the account's API key.
    account: name of the account whose requests are limited together; by default the zone.
    tiered: whether purges are repeated; for a zone with Origin Shield.
    base_url, timeout_s: of the API.

    URLs come before tags: one request carries hundreds of URLs but only few tags.
    """

    name = "keycdn"

    def __init__(
        self,
        zone: int,
        *,
        key: str | SecretStr,
        account: str | None = None,
        tiered: bool = False,
        base_url: str = "https://api.keycdn.com",
        timeout_s: float = 10.0,
    ) -> None:
        super().__init__(zone, key=key, base_url=base_url, timeout_s=timeout_s)
        self.capabilities = Capabilities(
            kinds=(URL, TAG),
            batch={URL: 300, TAG: 4},
            batch_bytes=60_000,
            tag_field=TagField(name="cache-tag", separator=" ", max_tag_bytes=110),
            # The limit is 20 in any minute: the last limit that was published with a number.
            rates=(Rate(bucket=f"keycdn/{account or zone}", owner=Owner.ACCOUNT, per_s=10 / 60, burst=10),),
            effective_within_ms=5_000,
            tiered=tiered,
        )

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace. URLs are named without their scheme."""
        if targets[0].by == TAG:
            path, body = "purgetag", {"tags": [target.value for target in targets]}
        else:
            path, body = "purgeurl", {"urls": [target.value.partition("://")[2] for target in targets]}
        request = self._request("DELETE", f"/zones/{path}/{self._zone}.json", body)
        request.headers["authorization"] = _basic(self._key)
        return request

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `description`."""
        return str(json_object(response).get("description") or response.text)

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: `status` decides, not the HTTP status."""
        body = json_object(response)
        if "status" not in body:
            return no_success(self, response)
        return (
            Delivered()
            if body["status"] == "success"
            else Rejected(reason=without(self.explained(response), self.secrets()))
        )


def _basic(key: SecretStr) -> str:
    """Return the `Authorization` value with the key as a user without a password."""
    return next(httpx.BasicAuth(key.get_secret_value(), "").auth_flow(httpx.Request("GET", "https://x"))).headers[
        "authorization"
    ]
