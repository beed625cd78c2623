"""EdgeGrid signature of Akamai's APIs.

Our own code, because the provider's library logs the signing key at debug level and brings another HTTP client. The library is
the oracle of the tests. Source: techdocs.akamai.com/developer/docs/authenticate-with-edgegrid.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass

from pydantic import SecretStr

MAX_BODY_BYTES = 131_072
"""Signed bytes of a body; the rest is not signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeGridCredentials:
    """Credentials of an API client, named as in `.edgerc`."""

    client_token: SecretStr
    client_secret: SecretStr
    access_token: SecretStr


def edgegrid_authorization(
    credentials: EdgeGridCredentials, *, method: str, host: str, target: str, body: bytes, timestamp: str, nonce: str
) -> str:
    """Return the value of `Authorization` for one request over https. Pure.

    target: path and query.
    timestamp: UTC, e.g. "20261123T04:05:06+0000"; Akamai refuses timestamps that are more than 30 s off.
    nonce: different for each request.
    """
    unsigned = (
        f"EG1-HMAC-SHA256 client_token={credentials.client_token.get_secret_value()};"
        f"access_token={credentials.access_token.get_secret_value()};timestamp={timestamp};nonce={nonce};"
    )
    content = ""
    if method == "POST" and body:
        content = base64.b64encode(hashlib.sha256(body[:MAX_BODY_BYTES]).digest()).decode()
    signed = "\t".join((method, "https", host, target, "", content, unsigned))
    key = _hmac(credentials.client_secret.get_secret_value(), timestamp)
    return f"{unsigned}signature={_hmac(key, signed)}"


def _hmac(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()
