"""Routes that are asked for whole answers, whatever conditions a client has.

Their handlers decide about conditions before they read what would be stored, so every client that has a copy would keep the cache
from having one.
"""

from __future__ import annotations

from typing import Any

REMEMBERED = 4_096


class AskedWhole:
    """Memory of these routes, learnt from their answers; the oldest are forgotten. Use from one event loop.

    Forgetting one costs a miss: the answer to the next condition is for its client alone, and teaches it again.
    """

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._routes: dict[Any, None] = {}

    def __contains__(self, route: Any) -> bool:
        return route in self._routes

    def learn(self, route: Any) -> None:
        """Note that answers of a route (`Plan.route`) could be stored if its handler saw no conditions."""
        while len(self._routes) >= self._limit and route not in self._routes:
            del self._routes[next(iter(self._routes))]
        self._routes[route] = None
