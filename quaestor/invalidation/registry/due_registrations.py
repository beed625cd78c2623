"""Registrations that wait for their due time, the earliest first."""

from __future__ import annotations

import itertools
import threading
from heapq import heappop, heappush
from typing import Final

from quaestor.clock import Clock
from quaestor.model import Registration

_LONGEST_WAIT_MS: Final = 1_000
"""Longest single wait: a clock that was set back must not delay a registration."""


class DueRegistrations:
    """Registrations by their due time. Thread-safe.

    most: largest number of waiting registrations.
    """

    def __init__(self, clock: Clock, *, most: int) -> None:
        self._clock = clock
        self._most = most
        self._heap: list[tuple[int, int, Registration]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()

    def put(self, registration: Registration, *, due_ms: int) -> bool:
        """Let a registration wait. Return False if too many wait already. O(log n)."""
        with self._changed:
            if len(self._heap) >= self._most:
                return False
            heappush(self._heap, (due_ms, next(self._numbers), registration))
            self._changed.notify()
            return True

    def take(self, stop: threading.Event) -> Registration | None:
        """Wait for the next due registration; return None after `stop` was set and `wake` was called."""
        with self._changed:
            while not stop.is_set():
                wait_ms = self._heap[0][0] - self._clock() if self._heap else None
                if wait_ms is not None and wait_ms <= 0:
                    return heappop(self._heap)[2]
                self._changed.wait(None if wait_ms is None else min(wait_ms, _LONGEST_WAIT_MS) / 1000)
        return None

    def wake(self) -> None:
        """Make the waiting thread check its `stop`."""
        with self._changed:
            self._changed.notify_all()
