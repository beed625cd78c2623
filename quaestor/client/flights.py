"""Requests under way whose answers other requests for the same wait for: one of them asks the server.

A request joins until the answer's fields have come: from then on its body is the leader's, who may read it as slowly as he likes.
Nobody waits for somebody who could wait for him.
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
    landed: the copy that its answer is; None: each who waits asks for himself.
    waiting: how many wait.
    """

    __slots__ = ("ask", "begun_ms", "key", "landed", "waiting")

    def __init__(self, key: Key, ask: Ask, begun_ms: float) -> None:
        self.key, self.ask, self.begun_ms = key, ask, begun_ms
        self.landed: Future[Copy | None] = Future()
        self.landed.set_running_or_notify_cancel()  # so that nobody who stops waiting cancels it for the others
        self.waiting = 0

    def land(self, copy: Copy | None) -> None:
        """Let those who wait go on; a second call does nothing."""
        if not self.landed.done():
            self.landed.set_result(copy)


class Flights:
    """All requests under way that others may join. May be used from several threads."""

    def __init__(self) -> None:
        self._under_way: dict[Key, Flight] = {}
        self._lock = threading.Lock()

    def board(self, key: Key, ask: Ask, now_ms: float, *, at_most_ms: float) -> tuple[Flight, bool]:
        """The flight for a key, and whether the caller leads it.

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
        """Let nobody join any more; returns whether somebody waits."""
        with self._lock:
            if self._under_way.get(flight.key) is flight:
                del self._under_way[flight.key]
            return flight.waiting > 0
