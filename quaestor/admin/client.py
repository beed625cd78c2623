"""Client of the admin API, for the command line: one call, and every failure as one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from quaestor.errors import ConfigurationError, DependencyError

TIMEOUT_S = 15.0


class AdminClient:
    """Client of one admin API.

    url: URL of the proxy or the application, with or without the API's path.
    """

    def __init__(self, url: str, token: str, *, path: str = "/quaestor/admin") -> None:
        base = url.rstrip("/").removesuffix(path)
        if not base.startswith(("http://", "https://")):
            raise ConfigurationError(f"--admin is a URL like http://127.0.0.1:8080, not {url!r}")
        self._base = base + path
        self._headers = {"authorization": f"Bearer {token}"}

    def purge(self, **what: Any) -> Mapping[str, Any]:
        """See `quaestor.admin.endpoints.Endpoints.purge`."""
        return self._call("POST", "/purge", json={name: value for name, value in what.items() if value})

    def sketch(self, *, off: bool) -> Mapping[str, Any]:
        """See `quaestor.admin.endpoints.Endpoints.sketch`."""
        return self._call("POST", "/sketch", json={"off": off})

    def status(self) -> Mapping[str, Any]:
        """See `quaestor.admin.endpoints.Endpoints.status`."""
        return self._call("GET", "/status")

    def _call(self, method: str, path: str, **options: Any) -> Mapping[str, Any]:
        """Answer of one call. Raises ConfigurationError for a wrong call, DependencyError if the other side fails."""
        try:
            answer = httpx.request(method, self._base + path, headers=self._headers, timeout=TIMEOUT_S, **options)
            reply = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DependencyError(
                f"{self._base} does not answer: {error}; is it up, and is its admin API on?"
            ) from error
        except ValueError as error:
            raise DependencyError(
                f"{self._base}{path} answered {answer.status_code}, and not as an admin API: is it on (--admin-token-file)?"
            ) from error
        if answer.status_code == 200 and isinstance(reply, dict):
            return reply
        detail = reply.get("detail", "") if isinstance(reply, dict) else ""
        if answer.status_code in (401, 403):
            raise ConfigurationError(f"{self._base} does not accept this token")
        if answer.status_code >= 500 or answer.status_code == 429:
            raise DependencyError(f"{self._base}{path}: {answer.status_code}: {detail}")
        raise ConfigurationError(f"{self._base}{path}: {answer.status_code}: {detail}")
