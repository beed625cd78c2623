"""Doorkeeper of the stores: on a route where storing costs more than it saves, an answer is stored at the second request for it.

Registering an answer's queries and storing it costs as much as a short handler run, in vain if no further request comes. A
route's own past predicts both sides. `share` is the share of its entries that were used at least once. `handler_s` and
`storing_s` are what a run and a storage take. Storing at the first request instead of the second saves one handler run for each
used entry, and costs one storage for each other entry. Both are equal at the break-even share:
storing_s / (storing_s + handler_s).

While the share is below it, the first request for a key is remembered and its answer is not stored. The second request within a
window stores it. One first request in PROBE is stored all the same, so that the share is still learned; one in RARE_PROBE where
the share is far below. Entries that a second request stored are not counted: their keys are not like all others.

Named after the part of TinyLFU that does the same (Einziger, Friedman, Manes, ACM ToS 2017, section 3.4.2). This one acts only
on routes where it has learned its use: a client that repeats a request expects the second answer from the cache. The caller
asks before the handler runs, so that a refused answer costs little. Pure, except for its memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
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
"""One first request in so many is stored all the same."""
RARE_PROBE: Final = 64
"""The same while the share is below a fourth of the break-even: each such storage is nearly always in vain."""
WINDOW_MS: Final = 600_000
"""A first request is remembered for so long at least, and for twice as long at most, unless very many come."""
MOST_KEYS: Final = 65_536
"""First requests that are remembered at least: 80 kB of a Bloom filter, twice."""
_FALSE_POSITIVES = 0.01
"""Share of first requests that are taken for second ones: their answers are stored, as without a doorkeeper."""
BLOCK: Final = 16
"""Durations of which one figure is taken."""
_QUARTILE: Final = BLOCK // 4
_WEIGHT: Final = 0.25
"""Weight of the newest block."""


class Turn(Enum):
    """Decision about an answer that could be stored."""

    FIRST = auto()
    """The answer is stored: the route's storages pay, too little is known, or it is one in PROBE."""
    REPEATED = auto()
    """The answer is stored because its key was requested before."""
    REFUSED = auto()
    """The answer is not stored."""


class Duration:
    """Duration of an action (seconds): the lower quartile of each BLOCK durations, recent blocks weigh more.

    The lower quartile is near the action's own cost. A mean would hold the waits for other requests of a busy process.
    """

    __slots__ = ("_block", "seconds")

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._block: list[float] = []

    def add(self, seconds: float) -> None:
        """Add one duration."""
        block = self._block
        block.append(seconds)
        if len(block) >= BLOCK:
            block.sort()
            lower = block[_QUARTILE]
            self.seconds = lower if self.seconds is None else self.seconds + _WEIGHT * (lower - self.seconds)
            block.clear()


def break_even(*, storing_s: float, handler_s: float) -> float:
    """Return the hit rate (0..1) below which caching costs more time than it saves."""
    return storing_s / (storing_s + handler_s) if storing_s else 0.0


@dataclass(slots=True)
class Usefulness:
    """Usefulness of a route's entries, and their costs; recently stored entries weigh more.

    name: of the route, for people.
    entries: entries that were judged.
    used: judged entries that were used at least once.
    refused: first requests that were not stored, or were stored only because of PROBE.
    handler, storing: what a handler run and a storage take.
    """

    name: str
    entries: float = 0.0
    used: float = 0.0
    refused: int = 0
    handler: Duration = field(default_factory=Duration)
    storing: Duration = field(default_factory=Duration)

    @property
    def share(self) -> float:
        """Share of the entries that were used (0..1)."""
        return min(1.0, self.used / self.entries) if self.entries else 1.0

    @property
    def break_even(self) -> float | None:
        """Share of used entries (0..1) at which storing at the first request costs what it saves. None: not measured yet."""
        handler_s, storing_s = self.handler.seconds, self.storing.seconds
        return None if handler_s is None or storing_s is None else break_even(storing_s=storing_s, handler_s=handler_s)

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

    most_share: upper bound of the break-even (0..1); 0: every route is stored at the first request.
    """

    def __init__(self, *, most_share: float) -> None:
        self._most_share = most_share
        self._routes: dict[Hashable, Usefulness] = {}
        self._watched: deque[tuple[int, Usefulness]] = deque()
        self._seen: _Seen | None = None

    def admitted(self, route: Hashable, name: str, *, now_ms: int) -> Usefulness | None:
        """Note that the answer to a first request became an entry. Returns the object that must count the entry's first use;
        None: no count is needed.

        name: of the route, for people.
        """
        if not self._most_share:
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

    def note_run(self, route: Hashable, seconds: float) -> None:
        """Note how long a handler run took."""
        usefulness = self._routes.get(route)
        if usefulness is not None:
            usefulness.handler.add(seconds)

    def note_storage(self, route: Hashable, seconds: float) -> None:
        """Note how long it took to register and store an answer."""
        usefulness = self._routes.get(route)
        if usefulness is not None:
            usefulness.storing.add(seconds)

    def kept_route(self, route: Hashable) -> Usefulness | None:
        """Return a route whose answers are now stored at the second request only; None: they are stored at the first."""
        usefulness = self._routes.get(route)
        return usefulness if usefulness is not None and self._keeps(usefulness) else None

    def turn(self, route: Hashable, key: str, *, now_ms: int) -> Turn:
        """Decide about an answer to a request for an absent key. If it is refused, the next one for the key is stored."""
        usefulness = self.kept_route(route)
        return Turn.FIRST if usefulness is None else self.turn_on(usefulness, key, now_ms=now_ms)

    def turn_on(self, usefulness: Usefulness, key: str, *, now_ms: int) -> Turn:
        """Decide as turn() does. usefulness: of kept_route()."""
        if self._seen is None:
            self._seen = _Seen()
        if self._seen.add(key, now_ms=now_ms):
            return Turn.REPEATED
        usefulness.refused += 1
        if usefulness.refused % PROBE:
            return Turn.REFUSED
        rarely = 4 * usefulness.share < (usefulness.break_even or 0.0)
        return Turn.REFUSED if rarely and usefulness.refused % RARE_PROBE else Turn.FIRST

    @property
    def kept(self) -> list[Usefulness]:
        """The routes whose answers are now stored at the second request only."""
        return [usefulness for usefulness in self._routes.values() if self._keeps(usefulness)]

    def break_evens(self) -> dict[str, float]:
        """Break-even of each route where it is known, by the name for people: the hit rate above which caching saves time."""
        return {
            usefulness.name: share
            for usefulness in self._routes.values()
            if (share := usefulness.break_even) is not None
        }

    def _keeps(self, usefulness: Usefulness) -> bool:
        if usefulness.entries < LEAST_ENTRIES:
            return False
        break_even = usefulness.break_even
        return break_even is not None and usefulness.share < min(break_even, self._most_share)
