"""Webhooks to real local servers: signed, bounded in time, and only to allowed networks."""

from __future__ import annotations

import asyncio
import json
import ssl
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook

from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.sink import DeliveryError
from quaestor.continuous.delivery.webhook import WebhookSink
from quaestor.errors import ConfigurationError
from tests.continuous.delivery.certificate import certificate
from tests.continuous.delivery.receivers import CLOSE, HANG, KEY, receiver, status

pytestmark = pytest.mark.anyio

BATCH = ResultBatch(
    query="offers",
    run=3,
    instant=1_700_000_000_000_001,
    first=5,
    rows=[
        {"_id": 1, "price": Decimal("1.50"), "at": datetime(2026, 1, 2, tzinfo=UTC)},
        {"_id": 2, "price": None, "at": None},
    ],
)
LOCAL = Networks(("127.0.0.0/8", "::1/128"))


def sink(url: str, *, networks: Networks = LOCAL, timeout_s: float = 20.0) -> WebhookSink:
    return WebhookSink(url, key=SecretStr(KEY), networks=networks, timeout_s=timeout_s)


async def failure(hook: WebhookSink) -> DeliveryError:
    with pytest.raises(DeliveryError) as raised:
        await hook.deliver(BATCH)
    return raised.value


async def test_a_webhook_is_signed_and_each_row_has_its_key() -> None:
    """The library of Standard Webhooks accepts the signature, and `webhook-id` is the batch's key."""
    async with receiver() as server:
        await sink(f"http://localhost:{server.port}/hook?a=b").deliver(BATCH)
    ((fields, body),) = server.requests
    message = Webhook(KEY).verify(body, fields)
    assert fields["webhook-id"] == "offers/3/5"
    assert fields["host"] == f"localhost:{server.port}"
    assert message == {
        "type": "continuous.results",
        "timestamp": "2023-11-14T22:13:20.000001Z",
        "data": {
            "query": "offers",
            "run": 3,
            "instant": 1_700_000_000_000_001,
            "rows": [
                {"key": "offers/3/5", "row": {"_id": 1, "price": "1.50", "at": "2026-01-02T00:00:00.000000Z"}},
                {"key": "offers/3/6", "row": {"_id": 2, "price": None, "at": None}},
            ],
        },
    }
    assert json.loads(body) == message


@pytest.mark.parametrize(
    ("script", "reason", "is_retryable"),
    [
        (status(500), "status", True),
        (status(429, retry_after="120"), "status", True),
        (status(404), "status", False),
        (status(307, location="http://169.254.169.254/"), "redirect", False),
        (CLOSE, "unreachable", True),
        (b"HTTP/1.1 nonsense\r\n\r\n", "unreachable", True),
    ],
)
async def test_a_failed_webhook_names_its_reason(script: bytes, reason: str, is_retryable: bool) -> None:
    """Only failures that may pass are tried again, and a redirect is never followed."""
    async with receiver(script) as server:
        error = await failure(sink(f"http://127.0.0.1:{server.port}/"))
    assert (error.reason, error.retryable) == (reason, is_retryable)
    assert error.retry_after_s == (120.0 if b"retry-after" in script else None)
    assert len(server.requests) == 1


@pytest.mark.parametrize("script", [HANG, b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 103 Hints\r\n\r\n"])
async def test_a_receiver_that_hangs_is_left_after_the_time_limit(script: bytes) -> None:
    """The limit holds for the whole delivery, and the connection is closed."""
    async with receiver(script) as server:
        error = await failure(sink(f"http://127.0.0.1:{server.port}/", timeout_s=0.2))
        async with asyncio.timeout(20):
            await server.left.wait()
    assert (error.reason, error.retryable) == ("timeout", True)


async def test_an_answer_without_end_is_not_read() -> None:
    """A receiver cannot fill the memory with its answer."""
    async with receiver(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(8 << 20)) as server:
        await sink(f"http://127.0.0.1:{server.port}/").deliver(BATCH)
    assert len(server.requests) == 1


async def test_a_closed_port_is_a_failure_that_may_pass() -> None:
    async with receiver() as server:
        port = server.port
    error = await failure(sink(f"http://127.0.0.1:{port}/"))
    assert (error.reason, error.retryable) == ("unreachable", True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"])
async def test_a_webhook_to_a_private_address_is_refused(host: str) -> None:
    """Without an allowed network no spelling of a local address is reached; the remedy is in the sentence."""
    async with receiver() as server:
        error = await failure(sink(f"http://{host}:{server.port}/", networks=Networks()))
        assert server.requests == []
    assert (error.reason, error.retryable) == ("forbidden-address", False)
    assert "webhook_networks" in str(error)


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("93.184.215.14", True), ("2606:2800:21f::1", True), ("10.0.0.1", False), ("169.254.169.254", False), ("::1", False),
        ("fe80::1%eth0", False), ("fd00::1", False), ("100.64.0.1", False), ("224.0.0.1", False), ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False), ("::ffff:10.0.0.1", False), ("192.168.7.9", True), ("::ffff:192.168.7.9", True),
        ("::7f00:1", False), ("::93.184.215.14", False), ("::", False), ("::ffff:0:7f00:1", False), ("64:ff9b:1::7f00:1", False),
        ("2001:0:7f00:1::", False), ("2002:5db8:d70e::1", False), ("::ffff:127.0.0.1", False), ("::ffff:93.184.215.14", True),
        ("::192.168.7.9", False), ("fec0::1", False), ("2a00:1450:4001::1", True),
    ],
)  # fmt: skip
def test_only_public_and_allowed_addresses_are_reached(address: str, is_allowed: bool) -> None:
    assert Networks(("192.168.7.0/24",)).allows(address) is is_allowed


async def test_plain_http_is_for_allowed_networks_only() -> None:
    """Results never cross public networks unencrypted; nothing is sent."""
    error = await failure(sink("http://93.184.215.14/", networks=Networks()))
    assert (error.reason, error.retryable) == ("forbidden-address", False)


async def test_a_certificate_is_checked_against_the_name_of_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to the checked address; name and certificate are those of the URL."""
    files = certificate(tmp_path, "localhost")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)
    async with receiver(tls=tls) as server:
        assert (await failure(sink(f"https://localhost:{server.port}/"))).reason == "unreachable"
        monkeypatch.setenv("SSL_CERT_FILE", str(files.certificate))
        await sink(f"https://localhost:{server.port}/").deliver(BATCH)
        assert (await failure(sink(f"https://127.0.0.1:{server.port}/"))).reason == "unreachable"
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["ftp://a/", "https://", "https://user:secret@a/", "https://a/#f", "https://[::1"])
def test_a_url_that_is_no_webhook_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="webhook"):
        sink(url)


@pytest.mark.parametrize("key", ["whsec_YQ==", "whsec_" + "A" * 120, "whsec_=", "whsec_ä"])
def test_a_weak_or_malformed_key_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match="webhook_key"):
        WebhookSink("https://a/", key=SecretStr(key), networks=LOCAL)
