"""Keys with a deadline that grows and never shrinks, and a queue of those that are due. Pure."""

from __future__ import annotations

import heapq


class Deadlines:
    """Keys with their deadlines in ms, earliest first. O(log n) a change.

    One queue entry per key, however often its deadline is extended: memory follows the keys.
    """

    __slots__ = ("_at_ms", "_queue")

    def __init__(self) -> None:
        self._at_ms: dict[bytes, int] = {}
        self._queue: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._at_ms)

    def __contains__(self, key: bytes) -> bool:
        return key in self._at_ms

    def get(self, key: bytes) -> int:
        """The key's deadline in ms; 0 if it has none."""
        return self._at_ms.get(key, 0)

    def extend(self, key: bytes, at_ms: int) -> bool:
        """Move the deadline to at_ms if that is later. Returns whether the key is new."""
        known_ms = self._at_ms.get(key)
        if known_ms is None:
            self._at_ms[key] = at_ms
            heapq.heappush(self._queue, (at_ms, key))
            return True
        if at_ms > known_ms:
            self._at_ms[key] = at_ms  # its queue entry comes up too early and is put back then
        return False

    def pop_due(self, now_ms: int, *, limit: int) -> list[bytes]:
        """Remove and return keys whose deadline has come, earliest first. Does at most `limit` steps of work."""
        due: list[bytes] = []
        for _ in range(limit):
            if not self._queue or self._queue[0][0] > now_ms:
                break
            key = self._queue[0][1]
            at_ms = self._at_ms[key]
            if at_ms > now_ms:
                heapq.heapreplace(self._queue, (at_ms, key))
                continue
            heapq.heappop(self._queue)
            del self._at_ms[key]
            due.append(key)
        return due

    def any_due(self, now_ms: int) -> bool:
        """Whether pop_due() has something to do."""
        return bool(self._queue) and self._queue[0][0] <= now_ms
