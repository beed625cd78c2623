"""Cloudflare's own SDK passes on the contract, and the place's requests are the SDK's."""

from __future__ import annotations

import pytest
from cloudflare import Cloudflare as Sdk

from quaestor.cdn_adapters import Delivered, Target
from quaestor.cdn_adapters.capabilities import PREFIX, TAG, URL
from quaestor.cdn_adapters.cloudflare import Cloudflare
from tests.cdn_contracts.cloudflare import TOKEN, ZONE, CloudflareContract
from tests.cdn_contracts.compared import compared
from tests.cdn_contracts.serving import serving

pytestmark = pytest.mark.anyio

FIELDS = ("authorization", "content-type", "accept")
BATCHES = {
    "files": (URL, ["https://shop.example/a?x=1&y=%20", "https://shop.example/"]),
    "tags": (TAG, ["q-1a2b", "flights"]),
    "prefixes": (PREFIX, ["shop.example/a/"]),
}


@pytest.mark.parametrize("field", BATCHES)
@pytest.mark.parametrize("soft", [False, True])
async def test_purge_requests_equal_the_sdk_s(field: str, soft: bool) -> None:
    """The place's purge requests equal those of the provider's own SDK."""
    kind, values = BATCHES[field]
    contract = CloudflareContract()
    with serving(contract) as served:
        with Sdk(api_token=TOKEN, base_url=f"{served.url}/client/v4", max_retries=0) as sdk:
            call = sdk.cache.invalidate if soft else sdk.cache.purge
            assert call(zone_id=ZONE, **{field: values}) is not None  # type: ignore[operator]
        place = Cloudflare(ZONE, token=TOKEN, soft=soft, base_url=served.url)
        async with place.connect() as connection:
            answer = await connection.send([Target(kind, value) for value in values])
            assert isinstance(answer, Delivered)
            assert answer.pace is not None
        theirs, ours = served.requests
        assert compared(ours, FIELDS) == compared(theirs, FIELDS)


@pytest.mark.parametrize(("plan", "kind"), [("free", URL), ("pro", TAG), ("business", TAG), ("enterprise", TAG)])
def test_the_cheapest_kind_of_the_plan(plan: str, kind: str) -> None:
    """On the free plan 800 URLs a second beat 5 requests with tags a minute; elsewhere a tag reaches every variant at once."""
    place = Cloudflare(ZONE, token=TOKEN, plan=plan)
    assert {target.by for target in place.targets(tags=["t"], urls=["https://shop.example/"])} == {kind}
