"""Zone that has a number, at a provider whose accounts have one key."""

from __future__ import annotations

from pydantic import SecretStr

from quaestor.cdn_adapters.hosted import HostedPlace
from quaestor.cdn_adapters.secret_settings import secret
from quaestor.errors import ConfigurationError


class NumberedZone(HostedPlace):
    """A numbered zone; the base of Bunny and KeyCdn.

    zone: its number.
    key: the account's API key.
    base_url, timeout_s: of the API.

    Raises ConfigurationError for a zone that is no positive number, and for an empty key.
    """

    def __init__(self, zone: int, *, key: str | SecretStr, base_url: str, timeout_s: float) -> None:
        if not isinstance(zone, int) or zone < 1:
            raise ConfigurationError(f"{zone!r} is no number of a zone of {self.name}")
        self._key = secret(key, f"the key of {self.name}")
        self._zone = zone
        super().__init__(address=str(zone), base_url=base_url, timeout_s=timeout_s, secrets=(self._key,))
