"""Due times of keys, the earliest first: a heap whose outdated entries are dropped when they come to its top."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K")


class DueTimes(Generic[K]):
    """Due times in ms, at most one for each key. O(log n) for each change, O(1) on average to look. Not thread-safe."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, K]] = []
        self._current: dict[K, tuple[int, int]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._current)

    def schedule(self, key: K, due_ms: int) -> None:
        """Set the due time of a key, instead of its former one."""
        known = self._current.get(key)
        if known is not None and known[0] == due_ms:
            return
        number = next(self._numbers)
        self._current[key] = due_ms, number
        heapq.heappush(self._heap, (due_ms, number, key))

    def advance(self, key: K, due_ms: int) -> None:
        """Set the due time of a key, unless the key has an earlier one."""
        known = self._current.get(key)
        if known is None or due_ms < known[0]:
            self.schedule(key, due_ms)

    def cancel(self, key: K) -> None:
        """Remove a key. Does nothing if the key has no due time."""
        self._current.pop(key, None)

    def clear(self) -> None:
        """Remove all keys."""
        self._heap.clear()
        self._current.clear()

    @property
    def earliest_ms(self) -> int | None:
        """Earliest due time; None: no key has one."""
        heap = self._heap
        while heap:
            due_ms, number, key = heap[0]
            if self._current.get(key) == (due_ms, number):
                return due_ms
            heapq.heappop(heap)
        return None

    def due(self, now_ms: int) -> Iterator[K]:
        """Remove the keys whose time has come, one after the other, the earliest first."""
        while (earliest_ms := self.earliest_ms) is not None and earliest_ms <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            del self._current[key]
            yield key
