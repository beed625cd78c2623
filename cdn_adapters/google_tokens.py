"""Access tokens of Google Cloud, by google-auth over httpx."""

from __future__ import annotations

import json
import threading
from typing import Any, Final

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.extras import imported
from quaestor.cdn_adapters.secret_settings import secret
from quaestor.errors import CdnError, ConfigurationError

_SCOPES: Final = ("https://www.googleapis.com/auth/compute",)


class GoogleTokens:
    """Access tokens, fetched when the last one has expired. Used from threads.

    service_account: the JSON key, or None for the application's default credentials.

    Raises ConfigurationError if the text is not the key of a service account.
    """

    def __init__(self, service_account: str | SecretStr | None) -> None:
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._known: tuple[SecretStr, ...] = ()
        self._key: SecretStr | None = None
        imported("google.auth", extra="google", what="Google Cloud CDN")
        if service_account is not None:
            self._key, self._known = _read(service_account)

    def token(self) -> str:
        """Return a valid token. Raises CdnError, retryable, if none can be fetched."""
        exceptions: Any = imported("google.auth.exceptions", extra="google", what="Google Cloud CDN")
        with self._lock:
            try:
                if self._credentials is None:
                    self._credentials = self._default_credentials()
                if not self._credentials.valid:
                    self._credentials.refresh(_over_httpx)
            except exceptions.GoogleAuthError as error:
                raise CdnError(f"Google Cloud gives no access token: {type(error).__name__}") from error
            return str(self._credentials.token)

    def secrets(self) -> tuple[SecretStr, ...]:
        """Return the secrets and tokens that may not be shown."""
        token = getattr(self._credentials, "token", None)
        return (*self._known, SecretStr(token)) if token else self._known

    def forget(self) -> None:
        """Drop the token, which was refused; the next call fetches another."""
        with self._lock:
            self._credentials = None

    def _default_credentials(self) -> Any:
        if self._key is None:
            auth: Any = imported("google.auth", extra="google", what="Google Cloud CDN")
            return auth.default(scopes=_SCOPES, request=_over_httpx)[0]
        accounts: Any = imported("google.oauth2.service_account", extra="google", what="Google Cloud CDN")
        return accounts.Credentials.from_service_account_info(json.loads(self._key.get_secret_value()), scopes=_SCOPES)


class _Response:
    """Implementation of google.auth.transport.Response."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.data = response.content


def _over_httpx(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    timeout: float | None = None,
    **_: object,
) -> _Response:
    """Implement google.auth.transport.Request."""
    exceptions: Any = imported("google.auth.exceptions", extra="google", what="Google Cloud CDN")
    try:
        return _Response(httpx.request(method, url, content=body, headers=headers, timeout=timeout or 10.0))
    except httpx.HTTPError as error:
        raise exceptions.TransportError(error) from error


def _read(service_account: str | SecretStr) -> tuple[SecretStr, tuple[SecretStr, ...]]:
    plain = service_account.get_secret_value() if isinstance(service_account, SecretStr) else service_account
    try:
        key = json.loads(plain)
        accounts: Any = imported("google.oauth2.service_account", extra="google", what="Google Cloud CDN")
        accounts.Credentials.from_service_account_info(key)
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            "service_account is not the JSON key of a service account; give the file's text"
        ) from error
    return SecretStr(plain), (secret(key["private_key_id"], "the key's id"),) if key.get("private_key_id") else ()
