"""Akamai: Fast Purge v3 by cache tag or by URL, signed with EdgeGrid.

API: techdocs.akamai.com/purge-cache/reference; limits read 2026-11. Tested on its contract, not on Akamai.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered, Pace, Rejected, Throttled
from quaestor.cdn_adapters.capabilities import TAG, URL, Capabilities, Owner, Rate, TagField, Unit
from quaestor.cdn_adapters.edgegrid import EdgeGridCredentials, edgegrid_authorization
from quaestor.cdn_adapters.hosted import HostedPlace, json_object, no_success, number_field, retry_after_s
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import secret, without
from quaestor.errors import ConfigurationError

_IN_TAGS: Final = "!#$&'+-.^_`|~"
"""Characters that stay as they are, besides letters and digits. The percent sign spells all others."""
_WAIT_S: Final = 5.0
"""Pause that the documentation advises after a 429."""


class Akamai(HostedPlace):
    """An Akamai account. Implements Place.

    host: of the API client, e.g. "akab-....luna.akamaiapis.net".
    client_token, client_secret, access_token: of the API client, with READ-WRITE for CCU APIs.
    account: name of the account whose purges are limited together; by default the host.
    network: production or staging.
    soft: `invalidate` instead of `delete`. The edge then revalidates, and may serve the old object while the origin is away.
    tiered: whether purges are repeated.
    base_url, timeout_s: of the API; by default https:// and the host.
    clock, nonce: replaced in tests.
    """

    name = "akamai"

    def __init__(
        self,
        host: str,
        *,
        client_token: str | SecretStr,
        client_secret: str | SecretStr,
        access_token: str | SecretStr,
        account: str | None = None,
        network: str = "production",
        soft: bool = False,
        tiered: bool = False,
        base_url: str | None = None,
        timeout_s: float = 10.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        nonce: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        if network not in ("production", "staging"):
            raise ConfigurationError(f"Akamai has no network {network!r}; choose production or staging")
        self._credentials = EdgeGridCredentials(
            client_token=secret(client_token, "Akamai's client_token"),
            client_secret=secret(client_secret, "Akamai's client_secret"),
            access_token=secret(access_token, "Akamai's access_token"),
        )
        self._host = host
        self._network = network
        self._action = "invalidate" if soft else "delete"
        self._clock = clock
        self._nonce = nonce
        super().__init__(
            address=host,
            base_url=base_url or f"https://{host}",
            timeout_s=timeout_s,
            secrets=(
                self._credentials.client_token,
                self._credentials.client_secret,
                self._credentials.access_token,
            ),
        )
        bucket = f"akamai/{account or host}"
        self.capabilities = Capabilities(
            kinds=(TAG, URL),
            batch={TAG: 400, URL: 400},
            batch_bytes=45_000,  # of 50,000; quotes and commas take the rest
            soft=True,
            tag_field=TagField(
                name="edge-cache-tag", separator=",", budget_bytes=7_900, max_tags=128, max_tag_bytes=128
            ),
            rates=(
                Rate(bucket=f"{bucket}/requests", owner=Owner.ACCOUNT, per_s=50, burst=100),
                Rate(
                    bucket=f"{bucket}/tags",
                    owner=Owner.ACCOUNT,
                    per_s=500 / 60,
                    burst=5_000,
                    unit=Unit.TARGET,
                    kinds=(TAG,),
                ),
                Rate(
                    bucket=f"{bucket}/urls",
                    owner=Owner.ACCOUNT,
                    per_s=200,
                    burst=10_000,
                    unit=Unit.TARGET,
                    kinds=(URL,),
                ),
            ),
            effective_within_ms=5_000,
            tiered=tiered,
        )

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """See Place."""
        return super().response_headers([_allowed(tag) for tag in tags])

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        """See Place."""
        return super().targets(tags=[_allowed(tag) for tag in tags], urls=urls)

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace."""
        body = {"objects": [target.value for target in targets]}
        return self._request("POST", f"/ccu/v3/{self._action}/{targets[0].by}/{self._network}", body)

    async def authorize(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        """See HostedPlace."""
        request.headers["authorization"] = edgegrid_authorization(
            self._credentials,
            method=request.method,
            host=request.headers["host"],
            target=request.url.raw_path.decode("ascii"),
            body=request.content,
            timestamp=self._clock().strftime("%Y%m%dT%H:%M:%S+0000"),
            nonce=self._nonce(),
        )

    def meaning(self, response: httpx.Response) -> Answer | None:
        """See HostedPlace. A 429 names the exceeded limit; 507 is the same of an older limit. A 400 may be about the clock."""
        if response.status_code in (429, 507):
            said = without(self.explained(response), self.secrets())
            return Throttled(retry_after_s=retry_after_s(response) or _WAIT_S, reason=said, pace=_pace(response))
        if response.status_code == 400 and "timestamp" in response.text.lower():
            return Rejected(
                reason=f"{without(self.explained(response), self.secrets())}: set this machine's clock", place_wide=True
            )
        return None

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `title` and `detail`."""
        body = json_object(response)
        return ": ".join(str(body[name]) for name in ("title", "detail") if body.get(name)) or response.text

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: 201 with a `purgeId`."""
        if response.status_code != 201 or "purgeId" not in json_object(response):
            return no_success(self, response)
        return Delivered(pace=_pace(response))


def _allowed(tag: str) -> str:
    """Spell a tag in the characters that Akamai allows. Different tags stay different."""
    return quote(tag, safe=_IN_TAGS)


def _pace(response: httpx.Response) -> Pace | None:
    """Return the pace of the scarcer bucket: of the requests, or of the objects of this kind."""
    paces = []
    for suffix in ("", "-objects"):
        remaining = number_field(response, "x-ratelimit-remaining" + suffix)
        per_s = number_field(response, "x-ratelimit-limit-per-second" + suffix)
        if remaining is not None and per_s:
            paces.append(Pace(remaining=remaining, reset_s=1 / per_s))
    return min(paces, key=lambda pace: pace.remaining, default=None)
