"""The store as the read path needs it: part of it lies in this process's memory."""

from __future__ import annotations

from typing import Protocol

from quaestor.model import CachedResponse
from quaestor.ports import ResponseStore
from quaestor.store.memory import Resident


class LocalStore(ResponseStore, Protocol):
    """A store that holds some of its entries in this process's memory."""

    def resident(self, key: str) -> Resident | None:
        """Return the entry in memory. No I/O."""

    def keep(self, response: CachedResponse) -> Resident:
        """Take a response into memory. No I/O."""

    def used(self, key: str, hits: int) -> None:
        """Note how often an entry was found in memory. No I/O."""

    def drop(self, key: str, why: str = ...) -> None:
        """Drop the entry in memory. No I/O.

        why: one of `observability.vocabularies.LEFT`.
        """
