"""Storage of entries: a store with a part in this process's memory, and the parts that know of each entry beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from quaestor.model import CachedResponse
from quaestor.ports import CacheSketch, DependencyIndex, Leases, ResponseStore, SharedInvalidation
from quaestor.store.memory import Resident


class LocalStore(ResponseStore, Protocol):
    """A store that holds some of its entries in this process's memory."""

    def resident(self, key: str) -> Resident | None:
        """Return the entry in memory. No I/O."""

    def keep(self, response: CachedResponse) -> Resident:
        """Take a response into memory. No I/O."""

    def adopt(self, resident: Resident) -> bool:
        """Replace the entry in memory by one with the same response. False: there is none. No I/O."""

    def used(self, key: str, hits: int) -> None:
        """Note how often an entry was found in memory. No I/O."""

    def drop(self, key: str, why: str = ...) -> None:
        """Drop the entry in memory. No I/O.

        why: one of `observability.vocabularies.LEFT`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStorage:
    """Storage of entries.

    index: dependency index, which knows the registrations of each entry.
    sketch: Cache Sketch, which knows the entries that clients may hold.
    leases: decides which of several processes fetches an entry; None: this process is alone.
    share: claims, updates the sketch and evicts in one operation; None: one after the other.
    """

    store: LocalStore
    index: DependencyIndex
    sketch: CacheSketch
    leases: Leases | None = None
    share: SharedInvalidation | None = None
