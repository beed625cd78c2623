"""Fastly's own SDK passes on the contract, and the place's requests are the SDK's."""

from __future__ import annotations

import fastly as sdk
import pytest
from fastly.api import purge_api
from fastly.model.purge_response import PurgeResponse

from quaestor.cdn_adapters import Delivered, Target
from quaestor.cdn_adapters.capabilities import TAG, URL
from quaestor.cdn_adapters.fastly import Fastly
from tests.cdn_contracts.compared import compared
from tests.cdn_contracts.fastly import SERVICE, TOKEN, FastlyContract
from tests.cdn_contracts.serving import Served, serving

pytestmark = pytest.mark.anyio

FIELDS = ("fastly-key", "fastly-soft-purge", "content-type", "accept")
KEYS = ["q-1a2b", "flights", "tenant:a/x"]
URLS = (
    "https://www.example.com/a/b?x=1&y=2",
    "https://www.example.com/",
    "https://www.example.com/caf%C3%A9/d'or?q=a%26b",
)


def client(served: Served) -> purge_api.PurgeApi:
    configuration = sdk.Configuration(host=served.url)
    configuration.api_token = TOKEN
    configuration.server_index = None
    return purge_api.PurgeApi(sdk.ApiClient(configuration))


@pytest.mark.parametrize("soft", [False, True])
async def test_purges_by_key_equal_the_sdk_s(soft: bool) -> None:
    """The place's purges by surrogate key equal those of the provider's own SDK."""
    more = {"fastly_soft_purge": 1} if soft else {}
    with serving(FastlyContract()) as served:
        body = PurgeResponse()  # version 15 names this model for the body, and it lacks the field
        body._data_store["surrogate_keys"] = KEYS
        client(served).bulk_purge_tag(SERVICE, purge_response=body, **more)
        place = Fastly(SERVICE, token=TOKEN, soft=soft, base_url=served.url)
        async with place.connect() as connection:
            assert await connection.send([Target(TAG, key) for key in KEYS]) == Delivered()
        theirs, ours = served.requests
        assert compared(ours, FIELDS) == compared(theirs, FIELDS)


@pytest.mark.parametrize("url", URLS)
async def test_purges_by_url_equal_the_sdk_s(url: str) -> None:
    """The place's purges by URL equal those of the provider's own SDK."""
    with serving(FastlyContract()) as served:
        served.contract.cache.store(url, [])  # type: ignore[attr-defined]
        client(served).purge_single_url(url.partition("://")[2])
        assert url not in served.contract.cache  # type: ignore[attr-defined]
        place = Fastly(SERVICE, token=TOKEN, base_url=served.url)
        async with place.connect() as connection:
            assert await connection.send([Target(URL, url)]) == Delivered()
        theirs, ours = served.requests
        assert compared(ours, FIELDS) == compared(theirs, FIELDS)
