"""Access tokens of Microsoft Entra ID for an app registration (OAuth 2.0, client credentials)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import httpx
from pydantic import SecretStr

from quaestor.cdn_adapters.hosted import checked_base, checked_name, json_object
from quaestor.cdn_adapters.secret_settings import secret, without
from quaestor.errors import CdnError

_EARLY_S = 120.0
"""Seconds between a token's renewal and its expiry."""


class AzureTokens:
    """Access tokens for the Azure Resource Manager, fetched when the last one has expired."""

    def __init__(
        self,
        *,
        tenant: str,
        client_id: str,
        client_secret: str | SecretStr,
        login_url: str,
        clock: Callable[[], float],
    ) -> None:
        self._url = f"{checked_base(login_url, 'the login')}/{checked_name(tenant, 'the tenant')}/oauth2/v2.0/token"
        self._client_id = client_id
        self._secret = secret(client_secret, "Azure's client_secret")
        self._clock = clock
        self._token: SecretStr | None = None
        self._until = 0.0

    async def token(self, client: httpx.AsyncClient) -> str:
        """Return a valid token. Raises CdnError if none can be fetched; not retryable if the secret is refused."""
        if self._token is None or self._clock() >= self._until:
            self._token = await self._fetch(client)
        return self._token.get_secret_value()

    def secrets(self) -> tuple[SecretStr, ...]:
        """Return the secrets and tokens that may not be shown."""
        return (self._secret,) if self._token is None else (self._secret, self._token)

    def forget(self) -> None:
        """Drop the token, which was refused; the next call fetches another."""
        self._token = None

    async def _fetch(self, client: httpx.AsyncClient) -> SecretStr:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._client_id,
            "client_secret": self._secret.get_secret_value(),
            "scope": "https://management.azure.com/.default",
        }
        response = await client.post(
            self._url, content=urlencode(form).encode(), headers={"content-type": "application/x-www-form-urlencoded"}
        )
        body = json_object(response)
        token, lives_s = body.get("access_token"), body.get("expires_in")
        if response.status_code != 200 or not isinstance(token, str) or not isinstance(lives_s, int | float):
            why = without(str(body.get("error_description") or body.get("error") or ""), self.secrets())[:200]
            raise CdnError(f"Azure gives no access token ({response.status_code} {why}): mend tenant, client or secret")
        self._until = self._clock() + lives_s - _EARLY_S
        return SecretStr(token)
