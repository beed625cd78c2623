"""Doorkeeper of the stores: on a route whose entries mostly end unused, an answer is stored at the second request for it.

Registering an answer's queries and storing it costs as much as a short handler run, in vain if no further request comes. A
route's own past predicts that: the share of its entries that were used at least once. While the share is low, the first request
for a key is remembered and its answer is not stored. The second request within a window stores it. One first request in PROBE is
stored all the same. Thus the share is still learned, and a route that is used again is soon admitted again.

Named after the part of TinyLFU that does the same (Einziger, Friedman, Manes, ACM ToS 2017, section 3.4.2). This one acts only
on routes where it has learned its use: a client that repeats a request expects the second answer from the cache. Pure, except
for its memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quaestor.first_use import FirstUse

if TYPE_CHECKING:
    import pybloom_live
else:
    pybloom_live = FirstUse("pybloom_live")

REASON: Final = "doorkeeper"
"""Label of the answers that it refuses."""
MOST_ROUTES: Final = 1_024
"""Routes whose share is learned; answers of further routes are stored at once."""
LEAST_ENTRIES: Final = 256
"""Entries of a route that must have been judged before any is refused."""
_MOST_ENTRIES = 1_024
"""Beyond this number the past is halved, so that the share follows the present requests."""
PATIENCE_MS: Final = 5_000
"""After so long without a use an entry counts as unused; a later use corrects that."""
_MOST_WATCHED = 4_096
"""Entries under watch at a time; with more under way, some are not counted."""
PROBE: Final = 16
WINDOW_MS: Final = 600_000
"""A first request is remembered for so long at least, and for twice as long at most, unless very many come."""
MOST_KEYS: Final = 65_536
"""First requests that are remembered at least: 80 kB of a Bloom filter, twice."""
_FALSE_POSITIVES = 0.01
"""Share of first requests that are taken for second ones: their answers are stored, as without a doorkeeper."""


@dataclass(slots=True)
class Usefulness:
    """Usefulness of a route's entries; recently stored entries weigh more.

    name: of the route, for people.
    entries: entries that were judged.
    used: judged entries that were used at least once.
    refused: first requests that were not stored, or were stored only because of PROBE.
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
        """Count one judged entry."""
        self.entries += 1
        if self.entries > _MOST_ENTRIES:
            self.entries, self.used = self.entries / 2, self.used / 2

    def use(self) -> None:
        """Count the first use of one entry."""
        self.used += 1


class _Seen:
    """Keys that were seen lately, in two Bloom filters; the older one is dropped in time. About 5 us a call."""

    def __init__(self) -> None:
        self._recent, self._older = _filter(), _filter()
        self._since_ms: int | None = None

    def add(self, key: str, *, now_ms: int) -> bool:
        """Return whether a key was seen before, and remember it."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if len(self._recent) >= MOST_KEYS or now_ms - self._since_ms >= WINDOW_MS:
            gone = now_ms - self._since_ms >= 2 * WINDOW_MS
            self._recent, self._older = _filter(), _filter() if gone else self._recent
            self._since_ms = now_ms
        # Hashing is most of the cost, so an empty filter is skipped.
        return (bool(len(self._older)) and key in self._older) or bool(self._recent.add(key))


def _filter() -> pybloom_live.BloomFilter:
    return pybloom_live.BloomFilter(MOST_KEYS, _FALSE_POSITIVES)


class Doorkeeper:
    """The doorkeeper of one process. Any hashable value may stand for a route. Use from one event loop at a time.

    least_share: share of a route's entries (0..1) below which first answers are not stored; 0: all answers are stored.
    """

    def __init__(self, *, least_share: float) -> None:
        self._least_share = least_share
        self._routes: dict[Hashable, Usefulness] = {}
        self._watched: deque[tuple[int, Usefulness]] = deque()
        self._seen: _Seen | None = None

    def admitted(self, route: Hashable, name: str, *, now_ms: int) -> Usefulness | None:
        """Note that the answer to a first request became an entry. Returns the object that must count the entry's first use;
        None: no count is needed.

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

    def note_use(self, route: Hashable) -> None:
        """Note that an entry stored by another process was used here."""
        usefulness = self._routes.get(route)
        if usefulness is not None:
            usefulness.use()

    def refuses(self, route: Hashable, key: str, *, now_ms: int) -> bool:
        """Whether an answer is not to be stored because its request is the first one for this key. The next one is stored."""
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
        """The routes whose answers are now stored at the second request only."""
        return [usefulness for usefulness in self._routes.values() if self._keeps(usefulness)]

    def _keeps(self, usefulness: Usefulness) -> bool:
        return usefulness.entries >= LEAST_ENTRIES and usefulness.share < self._least_share
