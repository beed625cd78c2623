"""Cloudflare: purges by URL or by tag, the cheaper of the two on the account's plan.

API: developers.cloudflare.com/cache/how-to/purge-cache; limits read 2026-11. Tested on its contract, not on Cloudflare.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered, Pace, Rejected
from quaestor.cdn_adapters.capabilities import EVERYTHING, PREFIX, TAG, URL, Capabilities, Owner, Rate, TagField, Unit
from quaestor.cdn_adapters.hosted import HostedPlace, checked_name, json_object, no_success
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.secret_settings import secret, without
from quaestor.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class _Plan:
    """Limits of a plan, for the whole account.

    per_s, burst: requests that purge by tag or prefix.
    urls_per_s: URLs.
    urls: in one request.
    """

    per_s: float
    burst: int
    urls_per_s: int
    urls: int
    kinds: tuple[str, ...] = (TAG, URL, PREFIX, EVERYTHING)


_PLANS: Final = {
    # 5 requests a minute with 100 tags each, against 800 URLs a second.
    "free": _Plan(5 / 60, 25, 800, 100, kinds=(URL, TAG, PREFIX, EVERYTHING)),
    "pro": _Plan(5, 25, 1_500, 100),
    "business": _Plan(10, 50, 1_500, 100),
    "enterprise": _Plan(50, 500, 3_000, 500),
}
_FIELDS: Final = {URL: "files", TAG: "tags", PREFIX: "prefixes"}
_REMAINING = re.compile(r"\br=(\d+)")
_RESET = re.compile(r"\bt=(\d+)")


class Cloudflare(HostedPlace):
    """A Cloudflare zone. Implements Place.

    zone: its id, of 32 hexadecimal digits (not its name).
    token: with the permission Zone, Cache Purge.
    plan: free, pro, business or enterprise. The free plan purges by URL, the others by tag, which reaches all variants.
    account: name of the account whose purges are limited together; the same for all its zones. By default the zone.
    soft: mark as stale instead of removing (`invalidate_cache`): one stale answer more where `stale-while-revalidate` allows.
    tiered: whether purges are repeated, for a tiered cache whose upper tier may be purged after the lower.
    base_url, timeout_s: of the API.
    by_tag: purge by tag on the free plan too.

    URLs find objects of the default cache key. With a custom key (headers, device type) purge by tag: `by_tag`.
    """

    name = "cloudflare"

    def __init__(
        self,
        zone: str,
        *,
        token: str | SecretStr,
        plan: str = "free",
        account: str | None = None,
        soft: bool = False,
        tiered: bool = False,
        by_tag: bool = False,
        base_url: str = "https://api.cloudflare.com",
        timeout_s: float = 10.0,
    ) -> None:
        limits = _PLANS.get(plan)
        if limits is None:
            raise ConfigurationError(f"Cloudflare has no plan {plan!r}; choose one of {', '.join(_PLANS)}")
        if not re.fullmatch(r"[0-9a-f]{32}", zone):
            raise ConfigurationError(f"{zone!r} is no zone id: 32 hexadecimal digits, on the zone's page; not its name")
        self._token = secret(token, "Cloudflare's token")
        self._path = f"/client/v4/zones/{zone}/" + ("invalidate_cache" if soft else "purge_cache")
        super().__init__(address=zone, base_url=base_url, timeout_s=timeout_s, secrets=(self._token,))
        owner = checked_name(account or zone, "Cloudflare's account")
        self.capabilities = Capabilities(
            kinds=(TAG, URL, PREFIX, EVERYTHING) if by_tag else limits.kinds,
            batch={TAG: 100, URL: limits.urls, PREFIX: 100},
            batch_bytes=100_000,
            soft=True,
            tag_field=TagField(
                name="cache-tag", separator=",", budget_bytes=16_000, max_tag_bytes=1_024, case_sensitive=False
            ),
            rates=(
                Rate(
                    bucket=f"cloudflare/{owner}/requests",
                    owner=Owner.ACCOUNT,
                    per_s=limits.per_s,
                    burst=limits.burst,
                    kinds=(TAG, PREFIX, EVERYTHING),
                ),
                Rate(
                    bucket=f"cloudflare/{owner}/urls",
                    owner=Owner.ACCOUNT,
                    per_s=limits.urls_per_s,
                    burst=limits.urls_per_s,
                    unit=Unit.TARGET,
                    kinds=(URL,),
                ),
            ),
            effective_within_ms=1_000,
            tiered=tiered,
        )

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace."""
        kind = targets[0].by
        body: object = {"purge_everything": True}
        if kind != EVERYTHING:
            body = {_FIELDS[kind]: [target.value for target in targets]}
        return self._request("POST", self._path, body, {"authorization": f"Bearer {self._token.get_secret_value()}"})

    def explained(self, response: httpx.Response) -> str:
        """See HostedPlace: `errors`, each with code and message."""
        errors = json_object(response).get("errors")
        if not isinstance(errors, list):
            return response.text
        return "; ".join(f"{error.get('message')} ({error.get('code')})" for error in errors if isinstance(error, dict))

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: `success` decides, not the status."""
        body = json_object(response)
        if "success" not in body:
            return no_success(self, response)
        if body["success"] is not True:
            return Rejected(reason=without(self.explained(response), self.secrets()))
        return Delivered(pace=_pace(response))


def _pace(response: httpx.Response) -> Pace | None:
    """Read the pace from a field like `Ratelimit: "default";r=50;t=30`."""
    field = response.headers.get("ratelimit", "")
    remaining = _REMAINING.search(field)
    reset = remaining and _RESET.search(field, remaining.end())
    return Pace(remaining=float(remaining[1]), reset_s=float(reset[1])) if remaining and reset else None
