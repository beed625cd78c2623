"""Keys with deadlines that only grow, and a queue of the keys whose deadline has come. Pure."""

from __future__ import annotations

import heapq


class Deadlines:
    """Keys with their deadlines in ms, earliest first. A change takes O(log n).

    Each key has one queue entry, however often its deadline is extended: memory grows with the number of keys only.
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
        """Deadline of a key in ms; 0 if the key has none."""
        return self._at_ms.get(key, 0)

    def extend(self, key: bytes, at_ms: int) -> bool:
        """Move a deadline to at_ms if that is later. Returns whether the key is new."""
        known_ms = self._at_ms.get(key)
        if known_ms is None:
            self._at_ms[key] = at_ms
            heapq.heappush(self._queue, (at_ms, key))
            return True
        if at_ms > known_ms:
            self._at_ms[key] = at_ms  # its queue entry comes up too early, and is put back then
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
