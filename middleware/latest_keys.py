"""Bounded memory of keys that were learnt from answers; the oldest are forgotten first."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

REMEMBERED: Final = 4_096


class LatestKeys:
    """The keys that were learnt last. Use from one event loop. O(1) a call.

    limit: number of keys kept.
    """

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._keys: dict[Hashable, None] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def learn(self, key: Hashable) -> None:
        """Remember a key."""
        if key not in self._keys:
            if len(self._keys) >= self._limit:
                del self._keys[next(iter(self._keys))]
            self._keys[key] = None

    def forget(self, key: Hashable) -> None:
        """Forget a key."""
        self._keys.pop(key, None)
