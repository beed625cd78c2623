"""Signatures of webhooks by the Standard Webhooks (www.standardwebhooks.com): purges, results of queries, and brokers."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from quaestor.errors import ConfigurationError
from quaestor.first_use import FirstUse

if TYPE_CHECKING:
    import standardwebhooks
else:
    standardwebhooks = FirstUse("standardwebhooks")

_LEAST_BYTES: Final = 24
_MOST_BYTES: Final = 64


class Signer:
    """Signer and verifier of messages with one key.

    key: `whsec_` and base64 of 24 to 64 bytes, shared with the other side.
    name: of the key, for messages.

    Raises ConfigurationError for another key.
    """

    def __init__(self, key: SecretStr, *, name: str) -> None:
        try:
            content = base64.b64decode(key.get_secret_value().removeprefix("whsec_"), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigurationError(f"{name} is not whsec_ and base64") from error
        if not _LEAST_BYTES <= len(content) <= _MOST_BYTES:
            raise ConfigurationError(f"{name} has {len(content)} bytes; make a key of {_LEAST_BYTES} to {_MOST_BYTES}")
        self._content = content

    def fields(self, message: str, body: str, *, at_s: float) -> dict[str, str]:
        """Return the header fields of a message.

        message: its identity; a repeated message has the same.
        at_s: time of the signature, seconds since 1970.
        """
        at = datetime.fromtimestamp(int(at_s), UTC)
        return {
            "webhook-id": message,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": standardwebhooks.Webhook(self._content).sign(message, at, body),
        }

    def accepts(self, fields: dict[str, str], body: str) -> bool:
        """Whether header fields sign this body, at most five minutes before or after the present time."""
        from standardwebhooks.webhooks import WebhookVerificationError

        try:
            standardwebhooks.Webhook(self._content).verify(body, fields, json_parse=False)
        except (WebhookVerificationError, ValueError):
            return False
        return True
