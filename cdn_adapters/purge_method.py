"""Self-hosted cache that is purged by requests with the method PURGE: the part that Varnish, nginx, Squid and others share."""

from __future__ import annotations

import asyncio
from abc import ABC
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Answer, Delivered, Rejected
from quaestor.cdn_adapters.capabilities import URL, Capabilities
from quaestor.cdn_adapters.place import Connection, Target
from quaestor.cdn_adapters.pooled import PooledPlace, Singles
from quaestor.cdn_adapters.requests import SIDE_BY_SIDE
from quaestor.cdn_adapters.secret_settings import secret
from quaestor.errors import CdnError, ConfigurationError

TOKEN_FIELD = "quaestor-purge-token"
WHOLE_FIELD = "quaestor-purge-everything"
PROOF = "quaestor-purged"
"""Field on the answer to a purge: proof that the printed configuration took it, and not a server that answers any request."""
_KEEP_ALIVE_S = 4.0
"""Below the time for which these caches keep an idle connection (Varnish: 5 s), so that the cache rarely closes it first."""


class PurgeMethodPlace(PooledPlace, ABC):
    """Place that is purged directly, with a token, by the method PURGE; the base of such places. Implements Place.

    software: its name, for people.
    taken: statuses of answers to a purge that the place has taken.
    address: base URL, as this process reaches it. Raises ConfigurationError if it is not an http(s) URL.
    token: the token in the cache's configuration; None: the cache checks addresses alone.
    timeout_s: for one purge request.
    """

    name: str
    software: str
    taken: tuple[int, ...] = (200, 404)  # 404: there was nothing to purge
    address: str
    capabilities: Capabilities

    def __init__(self, address: str, *, token: str | SecretStr | None, timeout_s: float) -> None:
        _check(address, self.software)
        self.address = address
        self.base = address.rstrip("/")
        self._token = None if token is None else secret(token, f"the purge token of {self.software}")
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Open connections that are kept, each for one request at a time."""
        limits = httpx.Limits(max_connections=SIDE_BY_SIDE, keepalive_expiry=_KEEP_ALIVE_S)
        tls = httpx.create_ssl_context(trust_env=False) if self.base.startswith("https:") else False
        async with AsyncExitStack() as clients:
            connection = Singles(
                self,
                lambda: httpx.AsyncClient(timeout=self._timeout_s, limits=limits, trust_env=False, verify=tls),
                clients,
            )
            await connection.open()
            yield connection

    async def send(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> Answer:
        """Purge a batch on these connections: see Connection."""
        requests = self.requests(client, targets)
        outcomes = await asyncio.gather(
            *(self._answer(client, request) for request in requests), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return next((outcome for outcome in outcomes if isinstance(outcome, Rejected)), Delivered())

    def requests(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> list[httpx.Request]:
        """Build the requests that purge a batch: here, one for each URL."""
        return [self.by_url(client, target.value) for target in targets if target.by == URL]

    def by_url(self, client: httpx.AsyncClient, url: str, fields: Mapping[str, str] | None = None) -> httpx.Request:
        """Build the request that purges one URL, spelled as the client that fetched the object spelled it."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query or url.endswith("?") else "")
        # The target as it is: httpx would spell some characters differently.
        return self.request(
            client, {"host": parts.netloc.lower()} | dict(fields or {}), extensions={"target": target.encode("ascii")}
        )

    def request(
        self,
        client: httpx.AsyncClient,
        fields: Mapping[str, str],
        extensions: dict[str, object] | None = None,
        *,
        path: str = "/",
    ) -> httpx.Request:
        """Build a purge request with these fields and the token."""
        token = {} if self._token is None else {TOKEN_FIELD: self._token.get_secret_value()}
        return client.build_request("PURGE", self.base + path, headers={**token, **fields}, extensions=extensions or {})

    async def _answer(self, client: httpx.AsyncClient, request: httpx.Request) -> Answer:
        try:
            try:
                response = await client.send(request)
            except httpx.RemoteProtocolError:
                response = await client.send(request)  # the cache closed an idle connection at that moment
        except httpx.HTTPError as error:
            raise CdnError(
                f"{self.software} at {self.base} did not answer a purge: {error or type(error).__name__}"
            ) from error
        if response.status_code in self.taken and self.proved(request, response):
            return Delivered()
        if response.status_code == 403:
            return Rejected(reason=self.forbidden(), place_wide=True)
        why = f"what answers at {self.base} ({response.status_code}) does not purge: {self.remedy()}"
        if response.status_code >= 500:
            raise CdnError(why)
        return Rejected(reason=why, place_wide=True)

    def proved(self, request: httpx.Request, response: httpx.Response) -> bool:
        """Whether the answer proves that the printed configuration has taken the purge."""
        return PROOF in response.headers

    def forbidden(self) -> str:
        """Return the remedy of a refusal, for people."""
        return f"give the adapter the token of {self.software}'s configuration, and that one this host's address"

    def remedy(self) -> str:
        """Return the remedy of a cache that does not know purges, for people."""
        return f"give {self.software} the configuration of `quaestor cdn config {self.name}`"


def _check(address: str, software: str) -> None:
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigurationError(
            f"{address!r} is not the URL of a cache ({software}): {error}; write http://host:port"
        ) from error
    if url.userinfo:  # the address is shown: in metrics, logs and names of queues
        raise ConfigurationError(f"the URL of a cache ({software}) has no user and no password; write http://host:port")
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"{address!r} is not the URL of a cache ({software}); write http://host:port")
