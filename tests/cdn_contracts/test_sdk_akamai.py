"""Akamai's own library signs on the contract, and the place's signature is the library's."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest
from akamai.edgegrid.edgegrid import EdgeGridAuthHeaders
from requests import Request, Session

from quaestor.cdn_adapters import Delivered, Target
from quaestor.cdn_adapters.capabilities import TAG, URL
from tests.cdn_contracts.akamai import ACCESS_TOKEN, CLIENT_SECRET, CLIENT_TOKEN, AkamaiContract
from tests.cdn_contracts.compared import compared
from tests.cdn_contracts.providers import akamai_place
from tests.cdn_contracts.serving import serving

pytestmark = pytest.mark.anyio

MOMENT = datetime(2026, 11, 23, 4, 5, 6, tzinfo=UTC)
TIMESTAMP = "20261123T04:05:06+0000"
BATCHES = {
    "tag": [Target(TAG, "q-1a2b"), Target(TAG, "flights")],
    "url": [Target(URL, "https://shop.example/a?x=1&y=%20")],
}


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize(("soft", "action"), [(False, "delete"), (True, "invalidate")])
async def test_purge_requests_equal_the_ones_that_the_library_signs(kind: str, soft: bool, action: str) -> None:
    """The place's purge requests equal the ones that the provider's own library signs."""
    contract = AkamaiContract()
    targets = BATCHES[kind]
    with serving(contract) as served:
        place = akamai_place(served.url, soft=soft, clock=lambda: MOMENT, nonce=lambda: "one")
        async with place.connect() as connection:
            assert isinstance(await connection.send(targets), Delivered)
        theirs = Request(
            "POST", f"{served.url}/ccu/v3/{action}/{kind}/production",
            json={"objects": [target.value for target in targets]}, headers={"accept": "application/json"},
        ).prepare()  # fmt: skip
        # Over https, as it is meant; the test's own server has no certificate.
        signed = theirs.copy()
        signed.url = str(theirs.url).replace("http://", "https://")
        signed.body = served.requests[0].body  # a body's blanks are signed
        library = EdgeGridAuthHeaders(CLIENT_TOKEN, CLIENT_SECRET, ACCESS_TOKEN)
        expected = library.make_auth_header(signed, TIMESTAMP, "one")
        assert served.requests[0].fields["authorization"] == expected
        signed.body = theirs.body
        theirs.headers["authorization"] = library.make_auth_header(signed, TIMESTAMP, "two")
        with Session() as session:
            session.trust_env = False
            assert session.send(theirs).status_code == 201, "the library passes on the contract"
        ours, others = served.requests
        fields = ("content-type", "accept", "host")
        assert compared(ours, fields) == compared(others, fields)


async def test_the_pace_is_of_the_scarcer_bucket() -> None:
    contract = AkamaiContract()
    with serving(contract) as served:
        place = akamai_place(served.url)
        contract.objects["tag"].tokens = 3
        async with place.connect() as connection:
            answer = await connection.send(BATCHES["tag"])
        assert isinstance(answer, Delivered)
        assert answer.pace is not None
        assert answer.pace.remaining == 1
        assert answer.pace.reset_s == pytest.approx(1 / 8.33)


def test_the_signature_of_an_https_address() -> None:
    """By default the API is asked over https."""
    assert httpx.URL(akamai_place("https://akab.example").purge_request(BATCHES["tag"]).url).scheme == "https"
