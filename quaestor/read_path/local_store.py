"""What the read path needs of a store."""

from __future__ import annotations

from typing import Protocol

from quaestor.model import CachedResponse
from quaestor.ports import ResponseStore
from quaestor.store.memory import Resident


class LocalStore(ResponseStore, Protocol):
    """A store part of which is in this process's memory."""

    def resident(self, key: str) -> Resident | None: ...

    def keep(self, response: CachedResponse) -> Resident: ...

    def drop(self, key: str, why: str = ...) -> None:
        """why: one of metrics.LEFT."""
