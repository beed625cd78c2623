"""Labels that unsafe requests have outdated: a URI in all its variants (RFC 9111, section 4.4), a group (RFC 9875).

Every entry has the labels of its groups; an explicit entry also has its URI's. Outdating a label drops the entries that this
process holds under it. Entries that were stored before are refused, wherever they come from later. Guarded entries die by their
registrations as well, so that every process, every CDN and every sketch learns of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from quaestor.model import CachedResponse
from quaestor.read_path import shared_cache_rules
from quaestor.read_path import unsafe_invalidation as unsafe
from quaestor.read_path.freshness import values

REMEMBERED = 65_536
"""Outdated labels, and entries with labels, that are remembered. Older entries are refused."""


def labels(response: CachedResponse) -> tuple[str, ...]:
    """Return the labels of an entry: its URI, its path on any host, everything; its groups. O(size of fields)."""
    named = values(response.headers, b"cache-groups")
    by_itself = shared_cache_rules.is_explicit(response)
    if not (named or by_itself):
        return ()
    primary = response.key.partition("#")[0]
    origin = unsafe.origin(primary)
    names = [unsafe.group_label(origin, group) for group in unsafe.groups(response.headers, b"cache-groups")]
    if by_itself:
        names += [
            unsafe.uri_label(primary),
            unsafe.uri_label(response.resource),
            unsafe.EVERYTHING,
        ]
    return tuple(names)


class OutdatedLabels:
    """Memory of the labels that were outdated, and of the entries that have labels; one per read path.

    Use from one event loop. Every call is O(1) a label and entry.

    limit: number of labels, and of entries, that are remembered.
    """

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._outdated_at_ms: OrderedDict[str, int] = OrderedDict()
        self._floor_ms = -1
        self._held: OrderedDict[str, tuple[tuple[str, ...], tuple[str, ...]]] = OrderedDict()
        self._by_label: dict[str, set[str]] = {}

    def remember(self, response: CachedResponse, names: Sequence[str]) -> str | None:
        """Note that an entry with these labels is in memory. Returns the key of an entry that has to leave memory, if any."""
        if not names:
            return None
        self.forget(response.key)
        self._held[response.key] = (tuple(names), response.registrations)
        for name in names:
            self._by_label.setdefault(name, set()).add(response.key)
        if len(self._held) <= self._limit:
            return None
        oldest = next(iter(self._held))
        self.forget(oldest)
        return oldest

    def forget(self, key: str) -> tuple[str, ...]:
        """Forget an entry; returns its registrations."""
        names, registrations = self._held.pop(key, ((), ()))
        for name in names:
            keys = self._by_label[name]
            keys.discard(key)
            if not keys:
                del self._by_label[name]
        return registrations

    def outdate(self, names: Iterable[str], *, at_ms: int) -> tuple[list[str], list[str]]:
        """Outdate the entries stored under these labels until now. Returns the keys to drop and the registrations to kill: each
        entry's first, its own one. Its other registrations may guard unrelated entries."""
        keys: list[str] = []
        registrations: list[str] = []
        for name in names:
            self._outdated_at_ms[name] = max(at_ms, self._outdated_at_ms.get(name, -1))
            self._outdated_at_ms.move_to_end(name)
            for key in list(self._by_label.get(name, ())):
                keys.append(key)
                registrations += self.forget(key)[:1]
        while len(self._outdated_at_ms) > self._limit:
            self._floor_ms = max(self._floor_ms, self._outdated_at_ms.popitem(last=False)[1])
        return keys, registrations

    def outdated(self, names: Sequence[str], *, since_ms: int) -> bool:
        """Whether any of these labels was outdated at or after that time."""
        if not names:
            return False
        return since_ms <= self._floor_ms or any(since_ms <= self._outdated_at_ms.get(name, -1) for name in names)
