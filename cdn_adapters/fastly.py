"""Fastly: purges by surrogate key, up to 256 a request, or by URL.

API: www.fastly.com/documentation/reference/api/purging; limits read 2026-11. Tested on its contract, not on Fastly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered, Throttled
from quaestor.cdn_adapters.capabilities import TAG, URL, Capabilities, Owner, Rate, TagField, Unit
from quaestor.cdn_adapters.hosted import HostedPlace, checked_name, json_object, no_success, number_field, retry_after_s
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import secret

_IN_URLS: Final = "/:?&=%+,;@!$'()*~-._"
"""Characters that stay as clients spelled them, besides letters and digits."""
_PURGES_AN_HOUR: Final = 100_000


class Fastly(HostedPlace):
    """A Fastly service. Implements Place.

    service: its id.
    token: with the scope `purge_select`.
    customer: name of the customer whose purges are limited together; the same for all its services. By default the service.
    soft: expire objects instead of removing them: each serves about one stale answer more, while
        `stale_while_revalidate` lasts.
    shielding: whether an edge may fetch from a shield. Purges are then repeated, as Fastly advises: a purged edge may have
        fetched
        from a shield that was not purged yet.
    base_url, timeout_s: of the API.
    clock: seconds since 1970, for `Fastly-RateLimit-Reset`; replaced in tests.
    """

    name = "fastly"

    def __init__(
        self,
        service: str,
        *,
        token: str | SecretStr,
        customer: str | None = None,
        soft: bool = False,
        shielding: bool = True,
        base_url: str = "https://api.fastly.com",
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._token = secret(token, "Fastly's token")
        self._service = checked_name(service, "Fastly's service")
        self._soft = {"fastly-soft-purge": "1"} if soft else {}
        self._clock = clock
        super().__init__(address=service, base_url=base_url, timeout_s=timeout_s, secrets=(self._token,))
        self.capabilities = Capabilities(
            kinds=(TAG, URL),
            batch={TAG: 256, URL: 1},
            soft=True,
            tag_field=TagField(name="surrogate-key", separator=" ", budget_bytes=16_384, max_tag_bytes=1_024),
            rates=(
                Rate(
                    bucket=f"fastly/{customer or service}",
                    owner=Owner.ACCOUNT,
                    per_s=_PURGES_AN_HOUR / 3_600,
                    burst=_PURGES_AN_HOUR / 2,  # so that an hour never has more than the limit
                    unit=Unit.TARGET,
                ),
            ),
            effective_within_ms=2_000,
            tiered=shielding,
        )

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace."""
        fields = {"fastly-key": self._token.get_secret_value(), "content-type": "application/json"} | self._soft
        if targets[0].by == TAG:
            body = {"surrogate_keys": [target.value for target in targets]}
            return self._request("POST", f"/service/{self._service}/purge", body, fields)
        without_scheme = targets[0].value.partition("://")[2]
        return self._request("POST", "/purge/" + quote(without_scheme, safe=_IN_URLS), None, fields)

    def meaning(self, response: httpx.Response) -> Answer | None:
        """See HostedPlace. `Fastly-RateLimit-*` counts other calls too, so only a refusal makes it count."""
        if response.status_code != 429:
            return None
        reset_at = number_field(response, "fastly-ratelimit-reset")
        wait_s = retry_after_s(response)
        if wait_s is None and reset_at is not None:
            wait_s = min(max(1.0, reset_at - self._clock()), 3_600.0)
        return Throttled(retry_after_s=wait_s)

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `msg` and `detail`."""
        body = json_object(response)
        return ": ".join(str(body[name]) for name in ("msg", "detail") if body.get(name)) or response.text

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: an id for each key, or `status` and `id`."""
        body = json_object(response)
        return (
            Delivered()
            if body and all(isinstance(value, str) for value in body.values())
            else no_success(self, response)
        )
