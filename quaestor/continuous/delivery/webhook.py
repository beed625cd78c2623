"""Webhooks: batches of results as signed HTTP requests (www.standardwebhooks.com)."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Final

import httpx
from pydantic import SecretStr
from standardwebhooks import Webhook
from standardwebhooks.webhooks import EmptyWebhookSecretError

from quaestor.continuous.delivery.batch import ResultBatch, moment, to_json
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.sink import DeliveryError
from quaestor.errors import ConfigurationError

_LONGEST_RETRY_AFTER_S: Final = 3_600.0
_RETRYABLE: Final = frozenset({408, 421, 425, 429})
"""Statuses below 500 after which the same request may succeed (RFC 9110, RFC 8470, RFC 6585)."""


class WebhookSink:
    """Receiver of signed HTTP requests. Implements Sink.

    url: https, or http within the allowed private networks.
    key: `whsec_` and base64 of 24 to 64 bytes, shared with the receiver.
    timeout_s: for one whole delivery, from the look-up of the name to the status of the answer.
    clock: seconds since 1970, for the signature.

    `webhook-id` is the batch's key. The receiver confirms with any 2xx; its body is not read. A redirect is never followed.
    """

    kind = "webhook"

    def __init__(
        self,
        url: str,
        *,
        key: SecretStr,
        networks: Networks,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = url
        self._url = _checked(url)
        self._signer = _signer(key)
        self._networks = networks
        self._timeout_s = timeout_s
        self._clock = clock

    async def deliver(self, batch: ResultBatch) -> None:
        """See Sink."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(batch)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise DeliveryError(
                f"{self.name} did not confirm within {self._timeout_s:g} s", reason="timeout"
            ) from error
        except (httpx.HTTPError, OSError) as error:
            raise DeliveryError(f"{self.name} broke off: {error!r}", reason="unreachable") from error

    async def _send(self, batch: ResultBatch) -> None:
        host, port = self._url.host, self._url.port or (443 if self._url.scheme == "https" else 80)
        address = await self._networks.address_of(host, port)
        if self._url.scheme == "http" and not self._networks.is_private(address):
            raise DeliveryError(
                f"{self.name} is http, and {address} is in no network of webhook_networks: use https",
                reason="forbidden-address",
                retryable=False,
            )
        body = _body(batch)
        async with (
            httpx.AsyncClient(trust_env=False, timeout=self._timeout_s, verify=self._tls) as client,
            client.stream(
                "POST",
                self._url.copy_with(host=address),
                content=body,
                headers={"host": self._url.netloc.decode(), **self._fields(batch.key, body)},
                extensions={"sni_hostname": host},
            ) as response,
        ):
            self._judge(response)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def _fields(self, key: str, body: str) -> dict[str, str]:
        signed_at = datetime.fromtimestamp(int(self._clock()), UTC)
        return {
            "content-type": "application/json",
            "webhook-id": key,
            "webhook-timestamp": str(int(signed_at.timestamp())),
            "webhook-signature": self._signer.sign(key, signed_at, body),
        }

    def _judge(self, response: httpx.Response) -> None:
        status = response.status_code
        if response.is_success:
            return
        if response.is_redirect:
            raise DeliveryError(
                f"{self.name} redirects ({status}); install the query with the new address",
                reason="redirect",
                retryable=False,
            )
        raise DeliveryError(
            f"{self.name} answered {status}",
            reason="status",
            retryable=status >= 500 or status in _RETRYABLE,
            retry_after_s=_retry_after_s(response, self._clock()),
        )


def _body(batch: ResultBatch) -> str:
    rows = [{"key": key, "row": row} for key, row in batch.keyed_rows()]
    data = {"query": batch.query, "run": batch.run, "instant": batch.instant, "rows": rows}
    return to_json({"type": "continuous.results", "timestamp": moment(batch.instant), "data": data})


def _checked(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"the webhook {url!r} is no URL: {error}") from error
    if parsed.scheme not in ("https", "http") or not parsed.host or parsed.userinfo or parsed.fragment:
        raise ConfigurationError(f"the webhook {url!r} must be https://host/path, without a user and a fragment")
    return parsed


def _signer(key: SecretStr) -> Webhook:
    try:
        signer = Webhook(key.get_secret_value())
    except (ValueError, RuntimeError, EmptyWebhookSecretError) as error:
        raise ConfigurationError("the setting webhook_key is not whsec_ and base64") from error
    size = len(signer._whsecret)
    if not 24 <= size <= 64:
        raise ConfigurationError(f"the setting webhook_key has {size} bytes; make a key of 24 to 64")
    return signer


def _retry_after_s(response: httpx.Response, now_s: float) -> float | None:
    """Return the wait that the receiver wants, within an hour; None: it names no wait (RFC 9110, section 10.2.3)."""
    text = response.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_RETRY_AFTER_S)
    try:
        return min(max(0.0, parsedate_to_datetime(text).timestamp() - now_s), _LONGEST_RETRY_AFTER_S)
    except (ValueError, OverflowError):
        return None
