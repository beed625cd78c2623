"""HTTP API of a hosted CDN: one request for a batch, and the meaning of the answers that all of them share.

A provider's own module says how its requests are spelled, and what its error bodies mean.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.answers import Accepted, Answer, Rejected, Throttled
from quaestor.cdn_adapters.capabilities import Capabilities
from quaestor.cdn_adapters.place import Connection, Target
from quaestor.cdn_adapters.pooled import Pooled, PooledPlace
from quaestor.cdn_adapters.secret_settings import without
from quaestor.errors import CdnError, ConfigurationError

_REASON_CHARACTERS = 300
"""Of what a provider says, in an error: an HTML page is not repeated whole."""


class HostedPlace(PooledPlace, ABC):
    """Place behind a provider's HTTP API; the base of all of them. TLS is verified, redirects are not followed.

    base_url: another one only in tests, or for a provider's other region.
    timeout_s: for one request.
    secrets: see the method.
    """

    name: str
    address: str
    capabilities: Capabilities

    def __init__(self, *, address: str, base_url: str, timeout_s: float, secrets: tuple[SecretStr, ...]) -> None:
        self.address = address
        self._base = checked_base(base_url, self.name)
        self._timeout_s = timeout_s
        self._secrets = secrets

    def secrets(self) -> tuple[SecretStr, ...]:
        """Secrets that are removed from the provider's words before they are repeated."""
        return self._secrets

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """A pool of connections. The environment's proxies are used, as the provider is outside."""
        async with httpx.AsyncClient(timeout=self._timeout_s, headers={"user-agent": "quaestor"}) as client:
            yield Pooled(self, client)

    @abstractmethod
    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """The request that purges a batch, without credentials that are only known when it is sent."""

    async def authorize(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        """Sign the request, or add a token that may have to be fetched first."""

    def forget_token(self) -> bool:
        """Forget a fetched token that was refused; whether there is another one to be had."""
        return False

    @abstractmethod
    def answer(self, response: httpx.Response) -> Answer:
        """The meaning of an answer to purge_request. Called only for what `_shared` does not know."""

    def meaning(self, response: httpx.Response) -> Answer | None:
        """Errors of this provider that mean something else than their status does elsewhere; None: they do not."""
        return None

    def explained(self, response: httpx.Response) -> str:
        """The provider's own words about an error, for people."""
        return response.text

    async def send(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> Answer:
        """Purge a batch on these connections: see Connection."""
        request = self.purge_request(targets)
        response = await self._sent(client, request)
        return self._shared(response) or self.answer(response)

    def _request(
        self, method: str, path: str, body: object = None, fields: Mapping[str, str] | None = None
    ) -> httpx.Request:
        """A request to the API, with the path and query as they are to be on the wire."""
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        named = {"accept": "application/json"} | ({} if body is None else {"content-type": "application/json"})
        # The target as it is: httpx would leave `/a/..` out, which a cache has as a URL of its own.
        target = httpx.URL(self._base).raw_path.rstrip(b"/") + path.encode()
        return httpx.Request(
            method,
            self._base + path,
            content=content,
            headers=named | dict(fields or {}),
            extensions={"target": target},
        )

    async def _sent(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        request.extensions["timeout"] = httpx.Timeout(self._timeout_s).as_dict()
        request.headers.setdefault("user-agent", "quaestor")
        try:
            await self.authorize(client, request)
            response = await client.send(request)
            if response.status_code == 401 and self.forget_token():
                await self.authorize(client, request)
                response = await client.send(request)
            return response
        except httpx.HTTPError as error:
            why = without(str(error), self.secrets()) or type(error).__name__
            raise CdnError(f"{self.name} at {self.address} did not answer: {why}") from error

    def _shared(self, response: httpx.Response) -> Answer | None:
        """What an answer means whoever gave it; None: a success, as far as its status tells."""
        own = self.meaning(response)
        if own is not None:
            return own
        status = response.status_code
        said = without(self.explained(response), self.secrets())[:_REASON_CHARACTERS].strip()
        if status == 429:
            return Throttled(retry_after_s=retry_after_s(response), reason=f"too many purges: {said}")
        if status in (408, 425) or status >= 500:
            raise CdnError(f"{self.name} at {self.address}: {status} {said}", retry_after_s=retry_after_s(response))
        if 300 <= status < 400:
            return Rejected(reason=f"the API at {self._base} redirects: mend the base URL", place_wide=True)
        if status in (401, 403):
            return Rejected(
                reason=f"the credentials are refused ({status} {said}): renew them, with the permission to purge",
                place_wide=True,
            )
        if status in (404, 405):
            return Rejected(reason=f"it knows no {self.address} ({status} {said}): mend the settings", place_wide=True)
        if status >= 400:
            return Rejected(reason=f"{status} {said}")
        if "html" in response.headers.get("content-type", ""):
            return Rejected(
                reason=f"what answers at {self._base} is no API ({status} with a web page): mend the base URL, or the proxy",
                place_wide=True,
            )
        return None


class AsynchronousPlace(HostedPlace):
    """Place behind an API that accepts purges and makes them later; the base of those that can be asked for the outcome."""

    @abstractmethod
    def status_request(self, ticket: str) -> httpx.Request:
        """The request that asks what became of an accepted batch."""

    @abstractmethod
    def status(self, response: httpx.Response, ticket: str) -> Answer:
        """The meaning of an answer to status_request. Called only for what `_shared` does not know."""

    async def completed(self, client: httpx.AsyncClient, ticket: str) -> Answer:
        """Outcome of an accepted batch: see Connection."""
        response = await self._sent(client, self.status_request(ticket))
        shared = self._shared(response)
        if isinstance(shared, Throttled):  # asking too often says nothing about the purge
            return Accepted(ticket=ticket, ask_after_s=shared.retry_after_s or 5.0)
        return shared or self.status(response, ticket)


def checked_base(url: str, name: str) -> str:
    """A base URL without its last slash. Raises ConfigurationError for one that is none, or is not https off this machine."""
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigurationError(f"{url!r} is not the base URL of {name}: {error}; write https://host") from error
    local = parts.host in ("127.0.0.1", "::1", "localhost")
    if not parts.host or (parts.scheme != "https" and not (parts.scheme == "http" and local)) or parts.userinfo:
        raise ConfigurationError(f"{name}: the base URL must be https://host, without credentials")
    return url.rstrip("/")


def checked_name(value: str, what: str) -> str:
    """A part of a request's path: letters, digits, and `-`, `_`, `.` between. Raises ConfigurationError for anything else."""
    if not value or not value.isascii() or not value.strip("._-") or not value.replace("-", "").replace("_", "").replace(
        ".", ""
    ).isalnum():  # fmt: skip
        raise ConfigurationError(f"{what} {value!r} is none: letters and digits, with - _ . between them")
    return value


def retry_after_s(response: httpx.Response) -> float | None:
    """Seconds to wait, as `Retry-After` says them; None: it says none, or a date, which clocks may disagree about."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(seconds, 3_600.0) if seconds >= 0 else None


def number_field(response: httpx.Response, name: str) -> float | None:
    """A response field that is a number, not negative; None: it is missing, or none."""
    try:
        value = float(response.headers.get(name, ""))
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def json_object(response: httpx.Response) -> dict[str, object]:
    """The body as a JSON object; empty if it is none."""
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def no_success(place: HostedPlace, response: httpx.Response) -> Rejected:
    """Refusal of an answer that has the status of a success and not its body: nothing shows that anything was purged."""
    said = without(response.text, place.secrets())[:80]
    return Rejected(
        reason=f"what answers ({response.status_code}) is not {place.name}'s API, or has changed: {said!r}",
        place_wide=True,
    )
