"""Vercel: purges of a project by tag.

API: vercel.com/docs/rest-api/edge-cache; limits read 2026-11. Tested on its contract, not on Vercel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered, Throttled
from quaestor.cdn_adapters.capabilities import TAG, Capabilities, Owner, Rate, TagField
from quaestor.cdn_adapters.hosted import HostedPlace, checked_name, json_object, no_success, number_field, retry_after_s
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import secret, without


class Vercel(HostedPlace):
    """A project of Vercel. Implements Place.

    project: its id or name.
    token: of a member or owner.
    team: the team's id, if the project belongs to one.
    soft: `invalidate-by-tags`: the next reader still receives the old object. Otherwise `dangerously-delete-by-tags`.
    base_url, timeout_s: of the API.
    clock: seconds since 1970; replaced in tests.
    """

    name = "vercel"

    def __init__(
        self,
        project: str,
        *,
        token: str | SecretStr,
        team: str | None = None,
        soft: bool = False,
        base_url: str = "https://api.vercel.com",
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._token = secret(token, "Vercel's token")
        query = {"projectIdOrName": checked_name(project, "the project")} | ({"teamId": team} if team else {})
        action = "invalidate-by-tags" if soft else "dangerously-delete-by-tags"
        self._path = f"/v1/edge-cache/{action}?{urlencode(query)}"
        self._clock = clock
        super().__init__(address=project, base_url=base_url, timeout_s=timeout_s, secrets=(self._token,))
        self.capabilities = Capabilities(
            kinds=(TAG,),
            batch={TAG: 16},
            batch_bytes=4_000,
            soft=True,
            tag_field=TagField(name="vercel-cache-tag", separator=",", budget_bytes=4_000, max_tag_bytes=256),
            # Our guess: Vercel publishes no rate. Its refusals decide.
            rates=(Rate(bucket=f"vercel/{team or project}", owner=Owner.ACCOUNT, per_s=2, burst=30),),
            effective_within_ms=1_000,
        )

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace. Purges all deployments, including previews."""
        body = {"tags": [target.value for target in targets]}
        return self._request("POST", self._path, body, {"authorization": f"Bearer {self._token.get_secret_value()}"})

    def meaning(self, response: httpx.Response) -> Answer | None:
        """See HostedPlace: a 429 carries the end of the wait in `X-RateLimit-Reset`."""
        if response.status_code != 429:
            return None
        wait_s, reset_at = retry_after_s(response), number_field(response, "x-ratelimit-reset")
        if wait_s is None and reset_at is not None:
            wait_s = min(max(1.0, reset_at - self._clock()), 3_600.0)
        return Throttled(retry_after_s=wait_s, reason=without(self.explained(response), self.secrets()))

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `error.code` and `error.message`."""
        error = json_object(response).get("error")
        return f"{error.get('code')}: {error.get('message')}" if isinstance(error, dict) else response.text

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: 200, without a documented body."""
        return Delivered() if response.status_code in (200, 204) else no_success(self, response)
