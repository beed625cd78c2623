"""Generic webhook: purges sent to your own program, signed by the Standard Webhooks (www.standardwebhooks.com)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered
from quaestor.cdn_adapters.capabilities import TAG, URL, Capabilities, TagField
from quaestor.cdn_adapters.hosted import HostedPlace
from quaestor.cdn_adapters.place import Target, cheapest_targets
from quaestor.cdn_adapters.secret_settings import secret
from quaestor.webhook_signatures import Signer


class Webhook(HostedPlace):
    """A receiver of purges. Implements Place.

    url: receives `{"type": "cdn.purge", "by": "tag" or "url", "values": [...]}`, and answers 2xx when it is purged.
    key: `whsec_` and base64 of 24 to 64 bytes, shared with the receiver.
    tag_header: the field with an answer's tags, separated by blanks; None: no field, and purges go by URL.
    timeout_s: for one request.
    effective_within_ms: your promise: bound from your 2xx until no copy is served.
    clock, message_id: replaced in tests.

    A purge by tag sends the tags and, in separate requests, the known URLs: use the kind that your CDN supports.
    """

    name = "webhook"

    def __init__(
        self,
        url: str,
        *,
        key: str | SecretStr,
        tag_header: str | None = "surrogate-key",
        timeout_s: float = 10.0,
        effective_within_ms: int = 0,
        clock: Callable[[], float] = time.time,
        message_id: Callable[[], str] = lambda: f"msg_{uuid.uuid4().hex}",
    ) -> None:
        self._key = secret(key, "the webhook's key")
        self._signer = Signer(self._key, name="the webhook's key")
        self._clock = clock
        self._message_id = message_id
        parts = urlsplit(url)
        self._path = parts.path + (f"?{parts.query}" if parts.query else "")
        super().__init__(
            address=parts.netloc, base_url=f"{parts.scheme}://{parts.netloc}", timeout_s=timeout_s, secrets=(self._key,)
        )
        self.capabilities = Capabilities(
            kinds=(URL,) if tag_header is None else (TAG, URL),
            batch={TAG: 100, URL: 100},
            tag_field=None if tag_header is None else TagField(name=tag_header.lower()),
            effective_within_ms=effective_within_ms,
        )

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        """See Place: both kinds, as the receiver may know only one."""
        by_tag = cheapest_targets(self.capabilities, tags=tags, urls=())
        return by_tag + cheapest_targets(self.capabilities, tags=(), urls=urls)

    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """See HostedPlace."""
        body = {"type": "cdn.purge", "by": targets[0].by, "values": [target.value for target in targets]}
        return self._request("POST", self._path, body)

    async def authorize(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        """See HostedPlace: `webhook-id`, `webhook-timestamp` and `webhook-signature`."""
        fields = self._signer.fields(self._message_id(), request.content.decode(), at_s=self._clock())
        request.headers.update(fields)

    def answer(self, response: httpx.Response) -> Answer:
        """See HostedPlace: any 2xx that is not a web page."""
        return Delivered()
