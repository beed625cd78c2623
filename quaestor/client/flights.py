"""Requests under way whose answers equal requests wait for: one of them asks the server.

A request may join until the answer's fields have come. From then on the leader reads the body, as slowly as it likes.
No request waits for one that could wait for it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from quaestor.client.copies import Copy
from quaestor.client.steps import Ask

Key = tuple[object, ...]


class Flight:
    """One request under way.

    ask: as it was sent.
    begun_ms: monotonic clock.
    landed: the copy of its answer; None: each waiting request asks for itself.
    waiting: number of waiting requests.
    """

    __slots__ = ("ask", "begun_ms", "key", "landed", "waiting")

    def __init__(self, key: Key, ask: Ask, begun_ms: float) -> None:
        self.key, self.ask, self.begun_ms = key, ask, begun_ms
        self.landed: Future[Copy | None] = Future()
        self.landed.set_running_or_notify_cancel()  # so that a request that stops waiting does not cancel it for others
        self.waiting = 0

    def land(self, copy: Copy | None) -> None:
        """Let the waiting requests go on; a second call does nothing."""
        if not self.landed.done():
            self.landed.set_result(copy)


class Flights:
    """All requests under way that others may join. Several threads may use it."""

    def __init__(self) -> None:
        self._under_way: dict[Key, Flight] = {}
        self._lock = threading.Lock()

    def board(self, key: Key, ask: Ask, now_ms: float, *, at_most_ms: float) -> tuple[Flight, bool]:
        """Return the flight for a key, and whether the caller leads it.

        at_most_ms: a flight that has been under way for longer is not joined: its answer may be too old.
        """
        with self._lock:
            flight = self._under_way.get(key)
            if flight is not None and now_ms - flight.begun_ms <= at_most_ms:
                flight.waiting += 1
                return flight, False
            flight = self._under_way[key] = Flight(key, ask, now_ms)
            return flight, True

    def close(self, flight: Flight) -> bool:
        """Close a flight to further requests; return whether any wait."""
        with self._lock:
            if self._under_way.get(flight.key) is flight:
                del self._under_way[flight.key]
            return flight.waiting > 0
