"""One Varnish node: the headers it understands and the purge requests it answers (see `varnish.vcl`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from cdn_adapters.answers import Answer, Delivered, Rejected
from cdn_adapters.capabilities import Capabilities, TagField
from cdn_adapters.place import TAG, URL, Connection, Target
from cdn_adapters.pooled import Pooled, PooledPlace
from cdn_adapters.secret_settings import secret
from quaestor.errors import CdnError, ConfigurationError

_KEEP_ALIVE_S = 4.0
"""Below Varnish's own `timeout_idle` of 5 s, so that it is seldom Varnish that closes a connection."""
_CONNECTIONS = 8
_FIELD_BYTES = 7_900
"""Of the tags of one answer: Varnish refuses a field line above `http_resp_hdr_len`, 8 KiB."""


class VarnishNode(PooledPlace):
    """Implements Place for one Varnish. Fields: see VarnishAdapter.

    address: base URL, without credentials. Raises ConfigurationError if it is not an http(s) URL.
    """

    name = "varnish"

    def __init__(
        self,
        address: str,
        *,
        soft: bool,
        token: str | SecretStr | None,
        tags: bool,
        timeout_s: float,
        tiered: bool = False,
    ) -> None:
        _check(address)
        self.address = address
        self._base = address.rstrip("/")
        self._soft = soft
        self._token = None if token is None else secret(token, "Varnish's purge token")
        self._timeout_s = timeout_s
        self.capabilities = Capabilities(
            kinds=(TAG, URL) if tags else (URL,),
            batch={TAG: 100, URL: 100},
            batch_bytes=4_000,
            soft=True,
            tag_field=TagField(name="xkey", budget_bytes=_FIELD_BYTES) if tags else None,
            tiered=tiered,
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """A pool of connections. All tags of a batch are one request, each URL is one of its own."""
        limits = httpx.Limits(max_connections=_CONNECTIONS, keepalive_expiry=_KEEP_ALIVE_S)
        async with httpx.AsyncClient(timeout=self._timeout_s, limits=limits, trust_env=False) as client:
            yield Pooled(self, client)

    async def send(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> Answer:
        """Purge a batch on these connections: see Connection."""
        requests = [self._by_url(client, target.value) for target in targets if target.by == URL]
        tags = [target.value for target in targets if target.by == TAG]
        if tags:
            requests.append(self._by_tags(client, tags))
        outcomes = await asyncio.gather(
            *(self._answer(client, request) for request in requests), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return next((one for one in outcomes if isinstance(one, Rejected)), Delivered())

    def _authorized(self) -> dict[str, str]:
        return {} if self._token is None else {"quaestor-purge-token": self._token.get_secret_value()}

    def _by_tags(self, client: httpx.AsyncClient, tags: Sequence[str]) -> httpx.Request:
        name = "xkey-softpurge" if self._soft else "xkey-purge"
        return client.build_request("PURGE", self._base + "/", headers=self._authorized() | {name: " ".join(tags)})

    def _by_url(self, client: httpx.AsyncClient, url: str) -> httpx.Request:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query or url.endswith("?") else "")
        headers = self._authorized() | {"host": parts.netloc} | ({"quaestor-purge-soft": "1"} if self._soft else {})
        # The target as it is: httpx would spell some characters differently from the client that fetched the object.
        return client.build_request(
            "PURGE", self._base + "/", headers=headers, extensions={"target": target.encode("ascii")}
        )

    async def _answer(self, client: httpx.AsyncClient, request: httpx.Request) -> Answer:
        try:
            try:
                response = await client.send(request)
            except httpx.RemoteProtocolError:
                response = await client.send(request)  # Varnish closed an idle connection just then
        except httpx.HTTPError as error:
            raise CdnError(
                f"Varnish at {self._base} did not answer a purge: {error or type(error).__name__}"
            ) from error
        if response.status_code == 200 and "quaestor-purged" in response.headers:
            return Delivered()
        if response.status_code == 403:
            return Rejected(
                reason="give VarnishAdapter the token of varnish_vcl, and varnish_vcl this host in purgers",
                place_wide=True,
            )
        why = (
            f"what answers at {self._base} ({response.status_code}) does not purge: start Varnish with varnish_vcl, or let"
            " your VCL answer purges with 200 and quaestor-purged"
        )
        if response.status_code >= 500:
            raise CdnError(why)
        return Rejected(reason=why, place_wide=True)


def _check(address: str) -> None:
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigurationError(f"{address!r} is not the URL of a Varnish: {error}; write http://host:port") from error
    if url.userinfo:  # the address is shown: in metrics, logs and names of queues
        raise ConfigurationError("the URL of a Varnish has no user and no password; write http://host:port")
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"{address!r} is not the URL of a Varnish; write http://host:port")
