"""Two-level store: this process's memory in front of a store that all processes share.

An entry of another process is taken into memory when it is read. The entry may be evicted from the shared store at that very
moment. The copy in memory is then never served, because its registrations are dead, and memory pressure removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quaestor.model import CachedResponse
from quaestor.ports import Guarded, ResponseStore
from quaestor.store.memory import MemoryStore, Resident


class SharedStore(ResponseStore, Protocol):
    """Store of all processes, which receives the hits in their memories."""

    def used(self, key: str, hits: int) -> None:
        """Note hits of an entry. No I/O."""


class TwoLevelStore:
    """Response store over two others, with resident() for the hit path. Implements ResponseStore. Use from one event loop.

    memory: of this process.
    shared: of all processes; an entry that it fails to store is in neither.
    """

    def __init__(self, memory: MemoryStore, shared: SharedStore) -> None:
        self._memory = memory
        self._shared = shared

    def resident(self, key: str) -> Resident | None:
        """Return the entry in this process's memory. No I/O."""
        return self._memory.resident(key)

    def keep(self, response: CachedResponse) -> Resident:
        """Take an entry read from the shared store into this process's memory. No I/O."""
        return self._memory.keep(response)

    def adopt(self, resident: Resident) -> bool:
        """Replace the entry in this process's memory by one with the same response. False: there is none. No I/O."""
        return self._memory.adopt(resident)

    def drop(self, key: str, why: str = "invalidated") -> None:
        """Forget the entry in this process's memory. No I/O.

        why: one of vocabularies.LEFT.
        """
        self._memory.drop(key, why)

    def used(self, key: str, hits: int) -> None:
        """Note hits in memory: the shared store keeps popular entries. No I/O."""
        self._shared.used(key, hits)

    async def get(self, key: str) -> CachedResponse | None:
        """Return the shared store's entry, and keep it in memory too; memory's own if the shared store has none."""
        response = await self._shared.get(key)
        if response is None:
            return await self._memory.get(key)
        self._memory.keep(response)
        return response

    async def put(self, response: CachedResponse, *, ttl_ms: int) -> None:
        """Store in both; in neither if the shared store fails."""
        try:
            await self._shared.put(response, ttl_ms=ttl_ms)
        except BaseException:
            self._memory.drop(response.key, "outdated")
            raise
        self._memory.keep(response)

    async def evict(self, dead: Sequence[Guarded]) -> None:
        """Remove from both; from memory even if the shared store fails."""
        await self._memory.evict(dead)
        await self._shared.evict(dead)

    async def clear(self) -> None:
        """Empty both."""
        await self._memory.clear()
        await self._shared.clear()
