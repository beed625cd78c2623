"""Doorkeeper of the stores: where the entries of a route mostly end unused, an answer is stored at the second request for it.

Registering an answer's queries and storing it costs as much as a short handler run, for nothing if nobody asks again. Whether
somebody will, a route's own past tells: the share of its entries that were used at least once. While that is low, the first
request for a key is remembered and its answer handed on; the second, within a window, stores it. One first request in PROBE is
stored nevertheless: so the share goes on being learned, and a route that is asked again is soon let in again.

Named after the part of TinyLFU that does the same (Einziger, Friedman, Manes, ACM ToS 2017, section 3.4.2). Here it learns where
it is of use, because a newcomer who asks twice expects the second answer from the cache. Pure, but for what it remembers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from pybloom_live import BloomFilter

REASON: Final = "doorkeeper"
"""The label of what it refuses."""
MOST_ROUTES: Final = 1_024
"""Routes of which the share is learned; answers of further ones are stored at once."""
LEAST_ENTRIES: Final = 256
"""Entries of a route that must have had their time before any is refused."""
_MOST_ENTRIES = 1_024
"""With so many the past is halved, so that the share follows what is asked for."""
PATIENCE_MS: Final = 5_000
"""After so long an unused entry counts as unused; if it is used later, that is made up for."""
_MOST_WATCHED = 4_096
"""Entries under watch at a time; with more under way, some are not counted."""
PROBE: Final = 16
WINDOW_MS: Final = 600_000
"""A first request is remembered for so long at least, and twice as long at most, unless very many come."""
MOST_KEYS: Final = 65_536
"""First requests that are remembered at least: 80 kB of a Bloom filter, twice."""
_FALSE_POSITIVES = 0.01
"""Share of first requests that are taken for second ones: they are stored, as without a doorkeeper."""


@dataclass(slots=True)
class Usefulness:
    """Usefulness of a route's entries, weighted by how lately they were stored.

    name: of the route, for people.
    entries: that have had their time.
    used: of them those that were used at least once.
    refused: first requests that were not stored, or would not have been but for PROBE.
    """

    name: str
    entries: float = 0.0
    used: float = 0.0
    refused: int = 0

    @property
    def share(self) -> float:
        """Share of the entries that were used (0..1)."""
        return min(1.0, self.used / self.entries) if self.entries else 1.0

    def count(self) -> None:
        """Count one entry that has had its time."""
        self.entries += 1
        if self.entries > _MOST_ENTRIES:
            self.entries, self.used = self.entries / 2, self.used / 2

    def use(self) -> None:
        """Count the first use of one entry."""
        self.used += 1


class _Seen:
    """Keys that were seen lately, in two Bloom filters of which the older one is dropped. About 5 us a call."""

    def __init__(self) -> None:
        self._recent, self._older = _filter(), _filter()
        self._since_ms: int | None = None

    def add(self, key: str, *, now_ms: int) -> bool:
        """Whether a key was seen before; from now on it was."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if len(self._recent) >= MOST_KEYS or now_ms - self._since_ms >= WINDOW_MS:
            gone = now_ms - self._since_ms >= 2 * WINDOW_MS
            self._recent, self._older = _filter(), _filter() if gone else self._recent
            self._since_ms = now_ms
        # An empty one is not asked: hashing is most of what it costs.
        return (bool(len(self._older)) and key in self._older) or bool(self._recent.add(key))


def _filter() -> BloomFilter:
    return BloomFilter(MOST_KEYS, _FALSE_POSITIVES)


class Doorkeeper:
    """The doorkeeper of one process. A route is whatever hashable thing stands for it. Use from one event loop at a time.

    least_share: of a route's entries that must be used for its answers to be stored at once (0..1); 0: they always are.
    """

    def __init__(self, *, least_share: float) -> None:
        self._least_share = least_share
        self._routes: dict[Hashable, Usefulness] = {}
        self._watched: deque[tuple[int, Usefulness]] = deque()
        self._seen: _Seen | None = None

    def admitted(self, route: Hashable, name: str, *, now_ms: int) -> Usefulness | None:
        """Note that the answer to a first request became an entry; its first use has to be counted in what is returned. None: it
        need not.

        name: of the route, for people.
        """
        if not self._least_share:
            return None
        watched = self._watched
        while watched and watched[0][0] <= now_ms:
            watched.popleft()[1].count()
        if len(watched) >= _MOST_WATCHED:
            return None
        usefulness = self._routes.get(route)
        if usefulness is None:
            if len(self._routes) >= MOST_ROUTES:
                return None
            usefulness = self._routes[route] = Usefulness(name)
        watched.append((now_ms + PATIENCE_MS, usefulness))
        return usefulness

    def found(self, route: Hashable) -> None:
        """Note that an entry which another process has stored was of use here."""
        usefulness = self._routes.get(route)
        if usefulness is not None:
            usefulness.use()

    def refuses(self, route: Hashable, key: str, *, now_ms: int) -> bool:
        """Whether the answer to a request is not to be stored, because it is the first one for this key. The next one's is."""
        usefulness = self._routes.get(route)
        if usefulness is None or not self._keeps(usefulness):
            return False
        if self._seen is None:
            self._seen = _Seen()
        if self._seen.add(key, now_ms=now_ms):
            return False
        usefulness.refused += 1
        return usefulness.refused % PROBE != 0

    @property
    def kept(self) -> list[Usefulness]:
        """The routes whose answers are stored at the second request now."""
        return [usefulness for usefulness in self._routes.values() if self._keeps(usefulness)]

    def _keeps(self, usefulness: Usefulness) -> bool:
        return usefulness.entries >= LEAST_ENTRIES and usefulness.share < self._least_share
