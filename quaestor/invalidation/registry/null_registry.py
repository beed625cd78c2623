"""A registry for when there is no database to watch: the cache lives on what origins say of their answers alone (RFC 9111).

Nothing can be registered, so nothing that depends on a query is ever stored; everything else is always good to serve.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.errors import RegistrationRefusedError
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import CapturedRead, Version
from quaestor.ports import Registered


class NullRegistry(Registry):
    """With a Redis it still listens: what another process outdates by name is outdated here too."""

    def watermark(self) -> Version:
        return 0

    @property
    def known_since_ms(self) -> int:
        return 0

    def serving(self, *, now_ms: int) -> bool:
        return True

    def abreast(self, *, now_ms: int) -> bool:
        return True

    def lagging(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        return False

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        return not registration_ids

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        raise RegistrationRefusedError(
            "no MongoDB is watched, so nobody would tell that this answer has changed: pass --mongo-url",
            retryable=False,
        )

    def start(self) -> None:
        if self._settings.redis_url is not None:
            super().start()
