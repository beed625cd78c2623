"""Hosted places behind the queue, and behind TLS."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from quaestor.cdn_adapters import BatchLimits, Delivery, Fastly, Target
from quaestor.cdn_adapters.capabilities import TAG
from quaestor.errors import CdnError
from tests.cdn_contracts.fastly import SERVICE, TOKEN, FastlyContract
from tests.cdn_contracts.serving import BROKEN, serving

pytestmark = pytest.mark.anyio

SHOP = "https://shop.example"


async def test_a_purge_that_failed_is_kept_and_repeated_until_the_provider_has_taken_it() -> None:
    """The caller hears of a 503, and the object goes all the same, in one request with what came meanwhile."""
    contract = FastlyContract()
    with serving(contract) as served:
        delivery = Delivery(
            Fastly(SERVICE, token=TOKEN, base_url=served.url), limits=BatchLimits(first_retry_ms=1, last_retry_ms=10)
        )
        for name in "ab":
            contract.cache.store(f"{SHOP}/{name}", delivery.response_headers([f"own-{name}"]))
        served.faults.append(BROKEN)
        with pytest.raises(CdnError) as failure:
            await delivery.purge(tags=["own-a"], urls=[])
        assert failure.value.retryable
        await delivery.purge(tags=["own-a", "own-b"], urls=[])
        assert [f"{SHOP}/{name}" in contract.cache for name in "ab"] == [False, False]
        await delivery.aclose()


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    """A server's context with a certificate that nobody has signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


async def test_a_certificate_that_nobody_vouches_for_ends_the_connection(self_signed: ssl.SSLContext) -> None:
    """The connection ends before anything is sent: a server with an unverified certificate never receives the token."""
    contract = FastlyContract()
    with serving(contract, tls=self_signed) as served:
        place = Fastly(SERVICE, token=TOKEN, base_url=served.url)
        async with place.connect() as connection:
            with pytest.raises(CdnError, match="certificate"):
                await connection.send([Target(TAG, "a")])
        assert served.requests == []
