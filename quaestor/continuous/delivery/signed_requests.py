"""Signed HTTP requests to a receiver: bounded in time, and only to allowed addresses."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Final

import httpx

from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.sink import DeliveryError, shown
from quaestor.errors import ConfigurationError
from quaestor.webhook_signatures import Signer

_LONGEST_RETRY_AFTER_S: Final = 3_600.0
_RETRYABLE: Final = frozenset({408, 421, 425, 429})
"""Statuses below 500 after which the same request may succeed (RFC 9110, RFC 8470, RFC 6585)."""
_AWAY: Final = frozenset({502, 503, 504})
"""Statuses of a receiver that cannot take requests at present."""


class SignedRequests:
    """Signed requests to one receiver: POST, and HEAD for its health.

    url: https, or http within the allowed private networks.
    timeout_s: for one whole delivery, from the look-up of the name to the status of the answer.
    clock: seconds since 1970, for the signature.

    The receiver confirms with any 2xx; its body is not read. A redirect is never followed. Raises ConfigurationError for a URL
    that cannot be reached.
    """

    def __init__(
        self,
        url: str,
        *,
        signer: Signer,
        networks: Networks,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._shown = shown(url)
        self._url = checked(url)
        self._signer = signer
        self._networks = networks
        self._timeout_s = timeout_s
        self._clock = clock

    async def post(self, message: str, body: str, fields: Mapping[str, str]) -> None:
        """Send a request, and return once the receiver has confirmed it. Raises DeliveryError.

        message: identity of the message, `webhook-id`. A repeated request has the same.
        fields: further header fields.
        """
        await self._bounded(lambda: self._send("POST", message, body, fields, self._judge))

    async def probe(self, message: str) -> None:
        """Send HEAD, and return if the receiver answers. Raises DeliveryError.

        Every status is an answer, except those of a proxy without a receiver (502, 503, 504).
        """
        await self._bounded(lambda: self._send("HEAD", message, "", {}, self._judge_health))

    async def _bounded(self, send: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await send()
        except (TimeoutError, httpx.TimeoutException) as error:
            raise DeliveryError(
                f"{self._shown} did not confirm within {self._timeout_s:g} s", reason="timeout"
            ) from error
        except (httpx.HTTPError, OSError) as error:
            raise DeliveryError(f"{self._shown} broke off: {error!r}", reason="unreachable") from error

    async def _send(
        self,
        method: str,
        message: str,
        body: str,
        fields: Mapping[str, str],
        judge: Callable[[httpx.Response], None],
    ) -> None:
        address = await self._networks.address_of(self._url.host, port_of(self._url))
        if self._url.scheme == "http" and not self._networks.is_private(address):
            raise DeliveryError(
                f"{self._shown} is http, and {address} is in no network of webhook_networks: use https",
                reason="forbidden-address",
                retryable=False,
            )
        signed = self._signer.fields(message, body, at_s=self._clock())
        headers = {"content-type": "application/json", **fields, **signed}
        async with (
            httpx.AsyncClient(trust_env=False, timeout=self._timeout_s, verify=self._tls) as client,
            pinned_stream(client, method, self._url, address, headers=headers, content=body) as response,
        ):
            judge(response)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def _judge_health(self, response: httpx.Response) -> None:
        if response.status_code in _AWAY:
            raise DeliveryError(f"{self._shown} answered {response.status_code}", reason="status")

    def _judge(self, response: httpx.Response) -> None:
        status = response.status_code
        if response.is_success:
            return
        if response.is_redirect:
            raise DeliveryError(
                f"{self._shown} redirects ({status}); declare the new address", reason="redirect", retryable=False
            )
        raise DeliveryError(
            f"{self._shown} answered {status}",
            reason="status",
            retryable=status >= 500 or status in _RETRYABLE,
            retry_after_s=_retry_after_s(response, self._clock()),
        )


def port_of(url: httpx.URL) -> int:
    """Return the port of an https or http URL."""
    return url.port or (443 if url.scheme == "https" else 80)


def pinned_stream(
    client: httpx.AsyncClient,
    method: str,
    url: httpx.URL,
    address: str,
    *,
    headers: Mapping[str, str],
    content: str | None = None,
) -> AbstractAsyncContextManager[httpx.Response]:
    """Request a URL from an address that was checked: its name is not looked up again, and TLS verifies the name."""
    return client.stream(
        method,
        url.copy_with(host=address),
        content=content,
        headers={"host": url.netloc.decode(), **headers},
        extensions={"sni_hostname": url.host},
    )


def checked(url: str) -> httpx.URL:
    """Return the parsed URL of a receiver. Raises ConfigurationError."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"the webhook {shown(url)!r} is no URL: {error}") from error
    if parsed.scheme not in ("https", "http") or not parsed.host or parsed.userinfo or parsed.fragment:
        raise ConfigurationError(f"the webhook {shown(url)!r} must be https://host/path, without a user and a fragment")
    return parsed


def _retry_after_s(response: httpx.Response, now_s: float) -> float | None:
    """Return the wait that the receiver wants, within an hour; None: it names no wait (RFC 9110, section 10.2.3)."""
    text = response.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_RETRY_AFTER_S)
    try:
        return min(max(0.0, parsedate_to_datetime(text).timestamp() - now_s), _LONGEST_RETRY_AFTER_S)
    except (ValueError, OverflowError):
        return None
