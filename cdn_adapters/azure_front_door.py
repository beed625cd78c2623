"""Azure Front Door (Standard and Premium): purges of an endpoint by path and domain.

API: learn.microsoft.com/rest/api/frontdoorservice (AFD Endpoints, Purge Content); limits read 2026-11. Tested on its contract,
not on Azure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote, urlsplit

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Accepted, Answer, Delivered, Pace, Rejected
from quaestor.cdn_adapters.azure_tokens import AzureTokens
from quaestor.cdn_adapters.capabilities import EVERYTHING, URL, Capabilities, Owner, Rate
from quaestor.cdn_adapters.hosted import (
    AsynchronousPlace,
    checked_name,
    json_object,
    no_success,
    number_field,
    retry_after_s,
)
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import without
from quaestor.errors import CdnError

_VERSION: Final = "2024-02-01"
_ASK_AFTER_S: Final = 10.0


class AzureFrontDoor(AsynchronousPlace):
    """An endpoint of Azure Front Door. Implements Place.

    subscription, resource_group, profile, endpoint: names of the endpoint.
    tenant, client_id, client_secret: of an app registration that may purge the endpoint (CDN Endpoint Contributor).
    domains: of the endpoint; a purge of everything names them. URLs name their own.
    base_url, login_url, timeout_s: of the API and of the tokens.
    clock: monotonic seconds, for a token's age; replaced in tests.

    Azure Front Door knows no tags. A purge takes up to 10 minutes, ignores query and case, and reaches a path on every named
    domain.
    """

    name = "azure-front-door"

    def __init__(
        self,
        *,
        subscription: str,
        resource_group: str,
        profile: str,
        endpoint: str,
        tenant: str,
        client_id: str,
        client_secret: str | SecretStr,
        domains: Sequence[str] = (),
        base_url: str = "https://management.azure.com",
        login_url: str = "https://login.microsoftonline.com",
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = AzureTokens(
            tenant=tenant, client_id=client_id, client_secret=client_secret, login_url=login_url, clock=clock
        )
        self._path = (
            f"/subscriptions/{checked_name(subscription, 'the subscription')}/resourceGroups/{quote(resource_group, safe='')}"
            f"/providers/Microsoft.Cdn/profiles/{checked_name(profile, 'the profile')}"
            f"/afdEndpoints/{checked_name(endpoint, 'the endpoint')}/purge?api-version={_VERSION}"
        )
        self._domains = tuple(domains)
        super().__init__(address=f"{profile}/{endpoint}", base_url=base_url, timeout_s=timeout_s, secrets=())
        self.capabilities = Capabilities(
            kinds=(URL, EVERYTHING),
            batch={URL: 100},
            rates=(Rate(bucket=f"azure/{subscription}", owner=Owner.ACCOUNT, per_s=10, burst=200),),
            asynchronous=True,
            effective_within_ms=600_000,
            url_ignores_query=True,
            url_ignores_case=True,
        )

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace. Paths and domains are separate lists: each path is purged on each domain."""
        urls = [urlsplit(target.value) for target in targets]
        if targets[0].by == EVERYTHING:
            paths, domains = ["/*"], list(self._domains)
        else:
            paths = list(dict.fromkeys(url.path or "/" for url in urls))
            domains = list(dict.fromkeys(url.hostname or "" for url in urls))
        body = {"contentPaths": paths} | ({"domains": domains} if domains else {})
        return self._request("POST", self._path, body)

    def status_request(self, ticket: str) -> httpx.Request:
        """See HostedPlace."""
        return self._request("GET", ticket)

    async def authorize(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        """See HostedPlace."""
        request.headers["authorization"] = "Bearer " + await self._tokens.token(client)

    def secrets(self) -> tuple[SecretStr, ...]:
        """See HostedPlace."""
        return self._tokens.secrets()

    def forget_token(self) -> bool:
        """See HostedPlace."""
        self._tokens.forget()
        return True

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `error.code` and `error.message`."""
        error = json_object(response).get("error")
        return f"{error.get('code')}: {error.get('message')}" if isinstance(error, dict) else response.text

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: 202 with the address of an operation, or 200 when the purge is done at once."""
        if response.status_code == 200:
            return Delivered(pace=_pace(response))
        where = response.headers.get("azure-asyncoperation") or response.headers.get("location") or ""
        if response.status_code != 202 or not where:
            return no_success(self, response)
        return Accepted(
            ticket=self._ticket(where), ask_after_s=retry_after_s(response) or _ASK_AFTER_S, pace=_pace(response)
        )

    def status(self, response: httpx.Response, ticket: str) -> Answer:
        """See HostedPlace: `status` of the operation. A 200 or 204 without a status ends the operation too."""
        status = json_object(response).get("status")
        if response.status_code == 202 or status in ("InProgress", "Running", "Accepted", "NotStarted"):
            return Accepted(ticket=ticket, ask_after_s=retry_after_s(response) or _ASK_AFTER_S)
        if status in ("Failed", "Canceled"):
            return Rejected(
                reason=f"the purge ended as {status}: {without(self.explained(response), self.secrets())[:200]}"
            )
        return Delivered()

    def _ticket(self, where: str) -> str:
        """Return path and query of an operation. Raises CdnError for an address elsewhere, which would receive the token."""
        if not where.startswith(self._base + "/"):
            raise CdnError(f"Azure named an operation outside of {self._base}: it is not asked")
        return where.removeprefix(self._base)


def _pace(response: httpx.Response) -> Pace | None:
    """Return the pace of ARM's writes, which come back at ten a second."""
    remaining = number_field(response, "x-ms-ratelimit-remaining-subscription-writes")
    return None if remaining is None else Pace(remaining=remaining, reset_s=0.1)
