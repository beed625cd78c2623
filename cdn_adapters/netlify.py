"""Netlify: purges of a site by tag.

API: docs.netlify.com/build/caching/caching-overview; limits read 2026-11. Tested on its contract, not on Netlify.
"""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered
from quaestor.cdn_adapters.capabilities import EVERYTHING, TAG, Capabilities, Owner, Rate, TagField
from quaestor.cdn_adapters.hosted import HostedPlace, checked_name, json_object, no_success
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import secret


class Netlify(HostedPlace):
    """A site of Netlify. Implements Place.

    site: its id.
    token: a personal access token.
    base_url, timeout_s: of the API.
    """

    name = "netlify"

    def __init__(
        self,
        site: str,
        *,
        token: str | SecretStr,
        base_url: str = "https://api.netlify.com",
        timeout_s: float = 10.0,
    ) -> None:
        self._token = secret(token, "Netlify's token")
        self._site = checked_name(site, "Netlify's site")
        super().__init__(address=site, base_url=base_url, timeout_s=timeout_s, secrets=(self._token,))
        self.capabilities = Capabilities(
            kinds=(TAG, EVERYTHING),
            batch={TAG: 100},
            tag_field=TagField(
                name="netlify-cache-tag", separator=",", max_tags=500, max_tag_bytes=1_024, case_sensitive=False
            ),
            # The limit is two purges in five seconds.
            rates=(Rate(bucket=f"netlify/{site}", owner=Owner.ZONE, per_s=0.4, burst=1),),
            effective_within_ms=5_000,
        )  # fmt: skip

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace. Without tags the whole site is purged."""
        body: dict[str, object] = {"site_id": self._site}
        if targets[0].by == TAG:
            body["cache_tags"] = [target.value for target in targets]
        return self._request(
            "POST", "/api/v1/purge", body, {"authorization": f"Bearer {self._token.get_secret_value()}"}
        )

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `message`."""
        return str(json_object(response).get("message") or response.text)

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: 202."""
        return Delivered() if response.status_code == 202 else no_success(self, response)
