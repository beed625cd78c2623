"""boto3 passes on the contract, and the place's requests are boto3's, signature too."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import boto3
import pytest
from botocore.config import Config

from quaestor.cdn_adapters import Accepted, Delivered, Target
from quaestor.cdn_adapters.capabilities import EVERYTHING, TAG, URL
from tests.cdn_contracts.cloudfront import (
    ACCESS_KEY,
    DISTRIBUTION,
    SECRET_KEY,
    SESSION_TOKEN,
    CloudFrontContract,
    signature_fault,
)
from tests.cdn_contracts.providers import cloudfront_place
from tests.cdn_contracts.serving import Received, Served, serving

pytestmark = pytest.mark.anyio

BATCHES = {
    "paths": (
        [Target(URL, "https://shop.example/a?x=1&y=%20"), Target(URL, "https://shop.example/")],
        ["/a?x=1&y=%20", "/"],
    ),
    "tags": ([Target(TAG, "q-1a2b"), Target(TAG, "flights")], ["#q-1a2b", "#flights"]),
    "everything": ([Target(EVERYTHING, "")], ["/*"]),
}


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(CloudFrontContract()) as served:
        yield served


def seen(request: Received) -> dict[str, object]:
    """The XML as its tree; who signed what and with which scope, but not the moment."""
    tree = ElementTree.canonicalize(request.body.decode()) if request.body else ""
    credential = request.fields["authorization"].partition(", SignedHeaders")[0]
    return {
        "method": request.method, "target": request.target, "body": tree, "credential": credential,
        "token": request.fields.get("x-amz-security-token"), "fault": signature_fault(request, SECRET_KEY),
    }  # fmt: skip


@pytest.mark.parametrize("batch", BATCHES)
async def test_an_invalidation_and_its_completion(batch: str, served: Served) -> None:
    targets, items = BATCHES[batch]
    sdk = boto3.client(
        "cloudfront", endpoint_url=served.url, aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
        aws_session_token=SESSION_TOKEN, region_name="us-east-1", config=Config(retries={"max_attempts": 0}),
    )  # fmt: skip
    made = sdk.create_invalidation(
        DistributionId=DISTRIBUTION,
        InvalidationBatch={"Paths": {"Quantity": len(items), "Items": items}, "CallerReference": "one"},
    )["Invalidation"]
    assert made["Status"] == "InProgress"
    served.contract.complete()  # type: ignore[attr-defined]
    assert sdk.get_invalidation(DistributionId=DISTRIBUTION, Id=made["Id"])["Invalidation"]["Status"] == "Completed"
    place = cloudfront_place(served.url, reference=lambda: "one")
    async with place.connect() as connection:
        answer = await connection.send(targets)  # the same reference and paths: AWS answers with what it made before
        assert answer == Accepted(ticket=made["Id"], ask_after_s=5.0)
        assert await connection.completed(made["Id"]) == Delivered()
    created, polled, ours, our_asking = served.requests
    assert seen(ours) == seen(created)
    assert seen(our_asking) == seen(polled)
    assert seen(ours)["fault"] is None
