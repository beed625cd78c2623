"""Varnish: purges by tag (xkey) or by URL, in every node, with the configuration that `varnish_vcl` makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit

import httpx

from cdn_adapters.batching import TAG, URL, BatchLimits, PurgeBatches, PurgeEvent, Send, Target
from quaestor.errors import CdnError, ConfigurationError

_SAFE_IN_TAGS = "!#$&'*+-./:;<=>?@^_`|~()[]"
"""Besides letters and digits. Blanks and commas separate tags."""
_KEEP_ALIVE_S = 4.0
"""Below Varnish's own `timeout_idle` of 5 s, so that it is seldom Varnish that closes a connection."""
_CONNECTIONS = 8


class VarnishAdapter:
    """Implements CdnAdapter for one or more Varnish nodes; a purge is done when every node has acknowledged it.

    urls: base URL of each node as this process reaches it, e.g. "http://10.0.0.5:6081".
    soft: expire objects instead of removing them. Only of use with a `grace_s` above 0; each then serves about one
        stale answer more.
    token: the `purge_token` given to varnish_vcl.
    tags: False for a Varnish without xkey: objects are purged by URL.
    timeout_s: for one purge request.
    limits: batching and retries, for each node.
    observe: called with a PurgeEvent after every batch, for metrics.

    Objects are purged by tag if there are tags, otherwise by URL. URLs must be absolute and spelled as clients spell them:
    Varnish finds objects by Host and target. All variants (Vary) go. A purge misses what is still being fetched.
    Raises ConfigurationError for an address that is not an http(s) URL.
    """

    name = "varnish"

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        soft: bool = False,
        token: str | None = None,
        tags: bool = True,
        timeout_s: float = 2.0,
        limits: BatchLimits | None = None,
        observe: Callable[[PurgeEvent], None] = lambda event: None,
    ) -> None:
        addresses = [urls] if isinstance(urls, str) else list(urls)
        if not addresses:
            raise ConfigurationError("VarnishAdapter needs the URL of at least one Varnish")
        for address in addresses:
            _check(address)
        self._tags = tags
        self._nodes = [
            PurgeBatches(
                _Node(address, soft=soft, token=token, timeout_s=timeout_s).connect,
                place=address,
                limits=limits,
                observe=observe,
            )
            for address in addresses
        ]

    @property
    def pending(self) -> int:
        """Purges that some node has not acknowledged yet."""
        return sum(node.pending for node in self._nodes)

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """`xkey`, which Varnish keeps to itself."""
        if not tags or not self._tags:
            return []
        return [(b"xkey", " ".join(map(_spelled, tags)).encode("ascii"))]

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        """See CdnAdapter. After a CdnError the purge is kept and repeated until every node has taken it."""
        targets = [Target(TAG, _spelled(tag)) for tag in tags] if self._tags else []
        await self._tell(targets or [Target(URL, _absolute(url)) for url in urls])

    async def _tell(self, targets: Sequence[Target]) -> None:
        outcomes = await asyncio.gather(*(node.purge(targets) for node in self._nodes), return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in errors:
            if not isinstance(error, CdnError):
                raise error
        if errors:
            raise CdnError(
                "; ".join(map(str, errors)),
                retryable=any(error.retryable for error in errors if isinstance(error, CdnError)),
                retry_after_s=max(error.retry_after_s or 0.0 for error in errors if isinstance(error, CdnError)),
            ) from errors[0]

    async def aclose(self) -> None:
        """Close the connections. Purges that are still pending are given up."""
        await asyncio.gather(*(node.aclose() for node in self._nodes))


class _Node:
    """The HTTP side of one Varnish."""

    def __init__(self, address: str, *, soft: bool, token: str | None, timeout_s: float) -> None:
        self._address = address.rstrip("/")
        self._soft = soft
        self._token = {} if token is None else {"quaestor-purge-token": token}
        self._timeout_s = timeout_s

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Send]:
        limits = httpx.Limits(max_connections=_CONNECTIONS, keepalive_expiry=_KEEP_ALIVE_S)
        async with httpx.AsyncClient(timeout=self._timeout_s, limits=limits, trust_env=False) as client:

            async def send(targets: Sequence[Target]) -> None:
                requests = [self._by_url(client, target.value) for target in targets if target.by == URL]
                tags = [target.value for target in targets if target.by == TAG]
                if tags:
                    requests.append(self._by_tags(client, tags))
                outcomes = await asyncio.gather(
                    *(self._acknowledged(client, request) for request in requests), return_exceptions=True
                )
                for outcome in outcomes:
                    if isinstance(outcome, BaseException):
                        raise outcome

            yield send

    def _by_tags(self, client: httpx.AsyncClient, tags: Sequence[str]) -> httpx.Request:
        name = "xkey-softpurge" if self._soft else "xkey-purge"
        return client.build_request("PURGE", self._address + "/", headers=self._token | {name: " ".join(tags)})

    def _by_url(self, client: httpx.AsyncClient, url: str) -> httpx.Request:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query or url.endswith("?") else "")
        headers = self._token | {"host": parts.netloc} | ({"quaestor-purge-soft": "1"} if self._soft else {})
        # The target as it is: httpx would spell some characters differently from the client that fetched the object.
        return client.build_request(
            "PURGE", self._address + "/", headers=headers, extensions={"target": target.encode("ascii")}
        )

    async def _acknowledged(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        try:
            try:
                response = await client.send(request)
            except httpx.RemoteProtocolError:
                response = await client.send(request)  # Varnish closed an idle connection just then
        except httpx.HTTPError as error:
            raise CdnError(
                f"Varnish at {self._address} did not answer a purge: {error or type(error).__name__}"
            ) from error
        if response.status_code == 200 and "quaestor-purged" in response.headers:
            return
        if response.status_code == 403:
            raise CdnError(
                f"Varnish at {self._address} refused a purge: give VarnishAdapter the token of varnish_vcl, and varnish_vcl"
                " this host in purgers",
                retryable=False,
            )
        raise CdnError(
            f"what answers at {self._address} ({response.status_code}) does not purge: start Varnish with varnish_vcl, or let"
            " your VCL answer purges with 200 and quaestor-purged",
            retryable=response.status_code >= 500,
        )


def _check(address: str) -> None:
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigurationError(f"{address!r} is not the URL of a Varnish: {error}; write http://host:port") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"{address!r} is not the URL of a Varnish; write http://host:port")


def _spelled(tag: str) -> str:
    """A tag without blanks, commas and bytes that a header cannot carry; the same wherever it is written."""
    return quote(tag, safe=_SAFE_IN_TAGS)


def _absolute(url: str) -> str:
    parts = urlsplit(url)
    if not parts.netloc or not url.isascii() or any(c <= " " for c in url):
        raise CdnError(f"{url!r} cannot be purged: it is not an absolute URL in ASCII", retryable=False)
    return url
