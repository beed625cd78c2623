"""Google Cloud CDN: invalidations of a URL map by cache tag or by host and path; tokens by google-auth.

API: cloud.google.com/compute/docs/reference/rest/v1/urlMaps/invalidateCache; limits read 2026-11. Tested on its contract, not on
Google Cloud. Needs the extra `google`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Accepted, Answer, Delivered, Rejected, Throttled
from quaestor.cdn_adapters.capabilities import EVERYTHING, TAG, URL, Capabilities, Owner, Rate, TagField
from quaestor.cdn_adapters.google_tokens import GoogleTokens
from quaestor.cdn_adapters.hosted import AsynchronousPlace, checked_name, json_object, no_success, retry_after_s
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import without

_TOO_MANY: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"})
_ASK_AFTER_S: Final = 2.0


class GoogleCloudCdn(AsynchronousPlace):
    """A URL map of Google Cloud. Implements Place.

    project: its id.
    url_map: its name.
    service_account: the JSON key of a service account with `compute.urlMaps.invalidateCache`; None: the application's default
        credentials.
    tags: whether to purge by `Cache-Tag`; otherwise by host and path, with every query.
    base_url, timeout_s: of the API.
    """

    name = "google-cloud-cdn"

    def __init__(
        self,
        project: str,
        url_map: str,
        *,
        service_account: str | SecretStr | None = None,
        tags: bool = True,
        base_url: str = "https://compute.googleapis.com",
        timeout_s: float = 10.0,
    ) -> None:
        self._tokens = GoogleTokens(service_account)
        self._global = f"/compute/v1/projects/{checked_name(project, 'the project')}/global"
        self._url_map = checked_name(url_map, "the URL map")
        address = f"{project}/{url_map}"
        super().__init__(address=address, base_url=base_url, timeout_s=timeout_s, secrets=())
        self.capabilities = Capabilities(
            kinds=(TAG, URL, EVERYTHING) if tags else (URL, EVERYTHING),
            batch={TAG: 10, URL: 1},
            tag_field=TagField(name="cache-tag", separator=",", budget_bytes=4_096, max_tags=50, max_tag_bytes=120)
            if tags
            else None,
            # The limit is 500 in any minute.
            rates=(Rate(bucket=f"google-cloud-cdn/{project}", owner=Owner.ACCOUNT, per_s=400 / 60, burst=100),),
            asynchronous=True,
            effective_within_ms=20_000,
            url_ignores_query=True,
        )

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace. Several tags are an OR; host and path are an AND."""
        body: dict[str, object]
        if targets[0].by == TAG:
            body = {"cacheTags": [target.value for target in targets]}
        elif targets[0].by == EVERYTHING:
            body = {"path": "/*"}
        else:
            parts = urlsplit(targets[0].value)
            body = {"host": parts.hostname or "", "path": parts.path or "/"}
        return self._request("POST", f"{self._global}/urlMaps/{self._url_map}/invalidateCache", body)

    def status_request(self, ticket: str) -> httpx.Request:
        """See HostedPlace."""
        return self._request("GET", f"{self._global}/operations/{ticket}")

    async def authorize(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        """See HostedPlace. A token is fetched in a thread when the last one has expired."""
        request.headers["authorization"] = "Bearer " + await asyncio.to_thread(self._tokens.token)

    def secrets(self) -> tuple[SecretStr, ...]:
        """See HostedPlace."""
        return self._tokens.secrets()

    def forget_token(self) -> bool:
        """See HostedPlace."""
        self._tokens.forget()
        return True

    def meaning(self, response: httpx.Response) -> Answer | None:
        """See HostedPlace: a 403 may be a rate limit too."""
        reasons = {str(error.get("reason")) for error in _errors(response)}
        if response.status_code in (403, 429) and reasons & _TOO_MANY:
            return Throttled(
                retry_after_s=retry_after_s(response), reason=without(self.explained(response), self.secrets())
            )
        return None

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `error.message`."""
        error = json_object(response).get("error")
        return str(error.get("message")) if isinstance(error, dict) else response.text

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: an operation."""
        return self._operation(response)

    def status(self, response: httpx.Response, ticket: str) -> Answer:
        """See HostedPlace: the operation's status."""
        return self._operation(response)

    def _operation(self, response: httpx.Response) -> Answer:
        body = json_object(response)
        name = body.get("name")
        if not isinstance(name, str) or "status" not in body:
            return no_success(self, response)
        if body["status"] != "DONE":
            return Accepted(ticket=checked_name(name, "the operation"), ask_after_s=_ASK_AFTER_S)
        error: Any = body.get("error")
        return Rejected(reason=f"the operation failed: {str(error)[:200]}") if error else Delivered()


def _errors(response: httpx.Response) -> list[dict[str, object]]:
    error = json_object(response).get("error")
    errors = error.get("errors") if isinstance(error, dict) else None
    return [entry for entry in errors if isinstance(entry, dict)] if isinstance(errors, list) else []
