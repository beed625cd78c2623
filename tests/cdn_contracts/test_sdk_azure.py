"""azure-mgmt-cdn passes on the contract, and the place's requests equal its requests, except for the API's version."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from azure.core.credentials import AccessToken
from azure.mgmt.cdn import CdnManagementClient
from azure.mgmt.cdn.models import AfdPurgeParameters

from quaestor.cdn_adapters import Accepted, Delivered, Target
from quaestor.cdn_adapters.capabilities import EVERYTHING, URL
from tests.cdn_contracts.azure_front_door import ENDPOINT, GROUP, PROFILE, SUBSCRIPTION, AzureContract
from tests.cdn_contracts.compared import compared
from tests.cdn_contracts.providers import azure_place
from tests.cdn_contracts.serving import Served, serving

pytestmark = pytest.mark.anyio

BATCHES = {
    "paths": (
        [Target(URL, "https://shop.example/a?x=1"), Target(URL, "https://www.shop.example/b")],
        {"content_paths": ["/a", "/b"], "domains": ["shop.example", "www.shop.example"]},
    ),
    "everything": ([Target(EVERYTHING, "")], {"content_paths": ["/*"], "domains": ["shop.example"]}),
}


class Credential:
    """One token of the contract's."""

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        return AccessToken("eyJ-of-the-sdk", int(time.time()) + 3_600)


@pytest.fixture
def served() -> Iterator[Served]:
    contract = AzureContract()
    with serving(contract) as served:
        contract.url = served.url
        yield served


@pytest.mark.parametrize("batch", BATCHES)
async def test_a_purge_and_its_completion(batch: str, served: Served) -> None:
    targets, parameters = BATCHES[batch]
    served.contract.tokens.add("eyJ-of-the-sdk")  # type: ignore[attr-defined]
    with CdnManagementClient(Credential(), SUBSCRIPTION, base_url=served.url) as sdk:
        poller = sdk.afd_endpoints.begin_purge_content(
            GROUP, PROFILE, ENDPOINT, AfdPurgeParameters(**parameters), polling=False, enforce_https=False
        )
        poller.result()
    place = azure_place(served.url, domains=["shop.example"])
    async with place.connect() as connection:
        answer = await connection.send(targets)
        assert isinstance(answer, Accepted)
        assert isinstance(await connection.completed(answer.ticket), Accepted)
        served.contract.complete()  # type: ignore[attr-defined]
        assert await connection.completed(answer.ticket) == Delivered()
    theirs, ours = (request for request in served.requests if request.path.endswith("/purge"))
    assert compared(ours, ("content-type",)) | {"target": ours.path} == compared(theirs, ("content-type",)) | {
        "target": theirs.path
    }
    assert set(ours.query) == set(theirs.query) == {"api-version"}
