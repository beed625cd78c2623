"""Traffic of each route: its hits, misses and bypasses with their reasons, in bounded memory. Event loop only.

The counts lie beside the metrics, which have no routes: the number of routes is not bounded, and metric labels must be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

MOST_ROUTES: Final = 256
"""Number of routes with counts of their own; further ones are counted together."""
MOST_COLLECTIONS: Final = 16
OTHERS: Final = "all further routes"
_LONGEST_NAME: Final = 200
_SHOWN_REASONS: Final = 5


class RouteCounts:
    """Counts of one route since the process began.

    hits: answers from cache.
    misses: answers by the handler, or by the run of another request.
    passed: requests that the cache kept out of.
    why: misses and passed requests by reason: vocabularies.MISSES and REASONS.
    collections: collections that its handlers read.
    """

    __slots__ = ("collections", "hits", "misses", "passed", "why")

    def __init__(self) -> None:
        self.hits = self.misses = self.passed = 0
        self.why: Counter[str] = Counter()
        self.collections: set[str] = set()

    def missed(self, reason: str) -> None:
        """Count a handler run, by the reason of the miss."""
        self.misses += 1
        self.why[reason] += 1

    def passed_by(self, reason: str) -> None:
        """Count a request that the cache kept out of."""
        self.passed += 1
        self.why[reason] += 1

    def refused(self, reasons: Iterable[str]) -> None:
        """Count the reasons why an answer was not stored."""
        for reason in reasons:  # Counter.update() makes ten calls
            self.why[reason] += 1

    def read(self, collections: Iterable[str]) -> None:
        """Note the collections that an answer was made of."""
        for collection in collections:
            if len(self.collections) < MOST_COLLECTIONS:
                self.collections.add(collection)


class RouteTraffic:
    """Traffic of all routes of one process."""

    def __init__(self) -> None:
        self._routes: dict[str, RouteCounts] = {}

    def of(self, name: str) -> RouteCounts:
        """Return the counts of a route, by its name for people."""
        name = name[:_LONGEST_NAME]
        counts = self._routes.get(name)
        if counts is None:
            counts = self._routes.setdefault(name if len(self._routes) < MOST_ROUTES else OTHERS, RouteCounts())
        return counts

    def report(self) -> list[dict[str, Any]]:
        """Return the requested routes as plain data, the busiest first."""
        rows = [
            {
                "route": name, "hits": counts.hits, "misses": counts.misses, "passed": counts.passed,
                "why": dict(counts.why.most_common(_SHOWN_REASONS)), "collections": sorted(counts.collections),
            }
            for name, counts in self._routes.items()
            if counts.hits or counts.misses or counts.passed
        ]  # fmt: skip
        return sorted(rows, key=lambda row: -(row["hits"] + row["misses"] + row["passed"]))
