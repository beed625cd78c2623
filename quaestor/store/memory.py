"""Responses in this process, within a byte budget; the least recently used one goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from quaestor.model import CachedResponse
from quaestor.ports import Guarded

_ENTRY_OVERHEAD_BYTES = 1500
"""Objects around one entry: response, header tuples, rendered headers, dictionary slots (measured, rounded up)."""


class Resident:
    """One response in memory, with what was worked out for it and goes when it goes.

    rendered: belongs to whoever sends the response; nothing here looks at it.
    explain: what the response depends on, for people; only known in the process that stored it.
    urls: absolute URLs that the dependency index is known to hold for this response.
    """

    __slots__ = ("explain", "rendered", "response", "size_bytes", "urls")

    def __init__(self, response: CachedResponse) -> None:
        self.response = response
        self.size_bytes = size_bytes(response)
        self.rendered: Any = None
        self.explain = ""
        self.urls: set[str] = set()


def size_bytes(response: CachedResponse) -> int:
    """What an entry is taken to cost; the header fields count twice, because they are kept rendered as well."""
    headers = sum(len(name) + len(value) + 160 for name, value in response.headers)
    names = len(response.key) + len(response.resource) + sum(map(len, response.registrations + response.tags))
    return _ENTRY_OVERHEAD_BYTES + len(response.body) + 2 * headers + names


class MemoryStore:
    """Implements ResponseStore, and resident() for the hit path. Use from one event loop. Every call is O(1) a key."""

    def __init__(self, *, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._entries: OrderedDict[str, Resident] = OrderedDict()
        self._guarded: dict[str, str] = {}
        self.used_bytes = 0

    def resident(self, key: str) -> Resident | None:
        """The entry, marked as used; whether it may be served is not decided here."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def keep(self, response: CachedResponse) -> Resident:
        """Store a response; one that is larger than the whole budget is returned without being stored."""
        entry = Resident(response)
        self.drop(response.key)
        if entry.size_bytes <= self._budget_bytes:
            self._entries[response.key] = entry
            self._guarded.update(dict.fromkeys(response.registrations, response.key))
            self.used_bytes += entry.size_bytes
            while self.used_bytes > self._budget_bytes:
                self.drop(next(iter(self._entries)))
        return entry

    def drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.used_bytes -= entry.size_bytes
            for registration_id in entry.response.registrations:
                self._guarded.pop(registration_id, None)

    def drop_guarded(self, registration_ids: Sequence[str]) -> list[CachedResponse]:
        """Forget what any of these guarded, whoever registered it: they are dead, and will not always be known to be.

        Returns what was forgotten.
        """
        dropped = []
        for registration_id in registration_ids:
            if (key := self._guarded.get(registration_id)) is not None:
                dropped.append(self._entries[key].response)
                self.drop(key)
        return dropped

    def drop_all(self) -> None:
        self._entries.clear()
        self._guarded.clear()
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: str) -> CachedResponse | None:
        entry = self.resident(key)
        return None if entry is None else entry.response

    async def put(self, response: CachedResponse, *, ttl_ms: int) -> None:
        """ttl_ms is not used: an expired entry is refused when it is looked up, and leaves as the least recently used."""
        self.keep(response)

    async def evict(self, dead: Sequence[Guarded]) -> None:
        for one in dead:
            entry = self._entries.get(one.key)
            if entry is not None and entry.response.registrations == one.registrations:
                self.drop(one.key)

    async def clear(self) -> None:
        self.drop_all()
