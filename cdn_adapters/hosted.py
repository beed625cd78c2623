"""HTTP API of a hosted CDN: one request for a batch, and the meaning of the answers that all providers share.

A provider's module spells its requests and interprets its error bodies.
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
"""Characters of a provider's message in an error: an HTML page is not repeated whole."""


class HostedPlace(PooledPlace, ABC):
    """Place behind a provider's HTTP API; the base of all hosted places. TLS is verified, redirects are not followed.

    base_url: of the API; different in tests, or for a provider's other region.
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
        """Return the secrets to remove from the provider's messages."""
        return self._secrets

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Open a pool of connections. The environment's proxies are used, as the provider is outside."""
        async with httpx.AsyncClient(timeout=self._timeout_s, headers={"user-agent": "quaestor"}) as client:
            yield Pooled(self, client)

    @abstractmethod
    def purge_request(self, targets: Sequence[Target]) -> httpx.Request:
        """Build the request that purges a batch, without credentials that are only known when it is sent."""

    async def authorize(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        """Sign the request, or add a token that may have to be fetched first."""

    def forget_token(self) -> bool:
        """Forget a fetched token that was refused; return whether another token can be fetched."""
        return False

    @abstractmethod
    def answer(self, response: httpx.Response) -> Answer:
        """Interpret an answer to purge_request. Called only for answers that `_shared` does not decide."""

    def meaning(self, response: httpx.Response) -> Answer | None:
        """Interpret errors whose status has a special meaning at this provider; None: the usual meaning."""
        return None

    def explained(self, response: httpx.Response) -> str:
        """Return the provider's message about an error, for people."""
        return response.text

    async def send(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> Answer:
        """Purge a batch on these connections: see Connection."""
        request = self.purge_request(targets)
        response = await self._sent(client, request)
        return self._shared(response) or self.answer(response)

    def _request(
        self, method: str, path: str, body: object = None, fields: Mapping[str, str] | None = None
    ) -> httpx.Request:
        """Build a request to the API. Path and query go on the wire as they are."""
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        named = {"accept": "application/json"} | ({} if body is None else {"content-type": "application/json"})
        # The target as it is: httpx would resolve `/a/..`, which is a distinct URL to a cache.
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
        """Return the meaning of an answer that is the same at all providers; None: a success, by its status."""
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
    """Place behind an API that accepts purges and completes them later; the base of places that report a purge's outcome."""

    @abstractmethod
    def status_request(self, ticket: str) -> httpx.Request:
        """Build the request for the outcome of an accepted batch."""

    @abstractmethod
    def status(self, response: httpx.Response, ticket: str) -> Answer:
        """Interpret an answer to status_request. Called only for answers that `_shared` does not decide."""

    async def completed(self, client: httpx.AsyncClient, ticket: str) -> Answer:
        """Return the outcome of an accepted batch: see Connection."""
        response = await self._sent(client, self.status_request(ticket))
        shared = self._shared(response)
        if isinstance(shared, Throttled):  # polling too often is no evidence about the purge
            return Accepted(ticket=ticket, ask_after_s=shared.retry_after_s or 5.0)
        return shared or self.status(response, ticket)


def checked_base(url: str, name: str) -> str:
    """Return a base URL without its last slash.

    Raises ConfigurationError if it is no URL, has credentials, or is not https (http is allowed to this machine).
    """
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigurationError(f"{url!r} is not the base URL of {name}: {error}; write https://host") from error
    local = parts.host in ("127.0.0.1", "::1", "localhost")
    if not parts.host or (parts.scheme != "https" and not (parts.scheme == "http" and local)) or parts.userinfo:
        raise ConfigurationError(f"{name}: the base URL must be https://host, without credentials")
    return url.rstrip("/")


def checked_name(value: str, what: str) -> str:
    """Check a part of a request's path: letters and digits, with `-`, `_`, `.` between. Raises ConfigurationError otherwise."""
    if not value or not value.isascii() or not value.strip("._-") or not value.replace("-", "").replace("_", "").replace(
        ".", ""
    ).isalnum():  # fmt: skip
        raise ConfigurationError(f"{what} {value!r} is none: letters and digits, with - _ . between them")
    return value


def retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds in `Retry-After`, 3,600 at most. None: it is missing, or a date, on which clocks may disagree."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(seconds, 3_600.0) if seconds >= 0 else None


def number_field(response: httpx.Response, name: str) -> float | None:
    """Return a response field as a number that is not negative; None: it is missing, or no such number."""
    try:
        value = float(response.headers.get(name, ""))
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def json_object(response: httpx.Response) -> dict[str, object]:
    """Return the body as a JSON object; empty if it is no object."""
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def no_success(place: HostedPlace, response: httpx.Response) -> Rejected:
    """Return the refusal for an answer with a success status and the wrong body: nothing shows that anything was purged."""
    said = without(response.text, place.secrets())[:80]
    return Rejected(
        reason=f"what answers ({response.status_code}) is not {place.name}'s API, or has changed: {said!r}",
        place_wide=True,
    )
