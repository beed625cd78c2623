"""google-auth and google-cloud-compute work on the contract; the place's requests equal theirs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator

import pytest
from google.oauth2 import service_account

from quaestor.cdn_adapters import Accepted, Delivered, Target
from quaestor.cdn_adapters.capabilities import TAG, URL
from quaestor.cdn_adapters.google_cloud_cdn import GoogleCloudCdn
from tests.cdn_contracts.compared import compared
from tests.cdn_contracts.google_cloud_cdn import PROJECT, URL_MAP, GoogleContract
from tests.cdn_contracts.google_cloud_cdn import service_account as key_of
from tests.cdn_contracts.serving import Served, serving

pytestmark = pytest.mark.anyio

BATCHES = {
    "tags": ([Target(TAG, "q-1a2b"), Target(TAG, "flights")], {"cache_tags": ["q-1a2b", "flights"]}),
    "path": ([Target(URL, "https://shop.example/a?x=1")], {"host": "shop.example", "path": "/a"}),
}


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(GoogleContract()) as served:
        yield served


@pytest.mark.parametrize("batch", BATCHES)
async def test_an_invalidation_and_its_completion(batch: str, served: Served) -> None:
    targets, rule = BATCHES[batch]
    credentials = service_account.Credentials.from_service_account_info(
        json.loads(key_of(served.url)), scopes=["https://www.googleapis.com/auth/compute"]
    )
    # Thousands of message classes: imported here, because every worker imports the modules of all tests.
    compute = importlib.import_module("google.cloud.compute_v1")
    rest = importlib.import_module("google.cloud.compute_v1.services.url_maps.transports.rest")
    transport = rest.UrlMapsRestTransport(
        host=served.url.removeprefix("http://"), url_scheme="http", credentials=credentials
    )  # fmt: skip
    with transport._session:
        made = compute.UrlMapsClient(transport=transport).invalidate_cache_unary(
            project=PROJECT, url_map=URL_MAP, cache_invalidation_rule_resource=compute.CacheInvalidationRule(**rule)
        )
    assert made.name in served.contract.operations  # type: ignore[attr-defined]
    place = GoogleCloudCdn(PROJECT, URL_MAP, service_account=key_of(served.url), base_url=served.url)
    async with place.connect() as connection:
        answer = await connection.send(targets)
        assert isinstance(answer, Accepted)
        assert isinstance(await connection.completed(answer.ticket), Accepted)
        served.contract.complete()  # type: ignore[attr-defined]
        assert await connection.completed(answer.ticket) == Delivered()
    theirs, ours = (request for request in served.requests if request.path.endswith("invalidateCache"))
    assert {**compared(ours, ("content-type",)), "target": ours.path} == {
        **compared(theirs, ("content-type",)), "target": theirs.path,
    }  # fmt: skip
    assertions = [request for request in served.requests if request.path == "/token"]
    assert len(assertions) == 2
