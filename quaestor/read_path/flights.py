"""Coalescing: of the requests for one key in this process, one runs the handler and the others wait for what it stores.

A leader lands exactly once, whatever becomes of it (stored, refused, left), so nobody waits for ever. A key whose answer
could not be stored is remembered for a moment: its next requests do not queue up behind each other for nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from enum import Enum, auto

SOLO_MS = 5_000
"""How long a key that could not be stored is not coalesced."""
_SOLO_LIMIT = 4096


class Landing(Enum):
    STORED = auto()
    REFUSED = auto()
    """The answer exists, but must not be given to anybody else."""
    LEFT = auto()
    """No answer: the handler raised, or its client went away."""


class Flight:
    """One handler run that others may wait for. Its leader calls land(); calling it again changes nothing."""

    def __init__(self, flights: Flights, key: str) -> None:
        self._flights = flights
        self._key = key
        self._landed: asyncio.Future[Landing] = asyncio.get_running_loop().create_future()

    def land(self, how: Landing) -> None:
        if not self._landed.done():
            self._landed.set_result(how)
            self._flights.forget(self._key, self)

    async def landing(self, *, deadline_s: float) -> Landing:
        """How it ended; REFUSED if it has not within the deadline, or if it belongs to another event loop."""
        if self._landed.get_loop() is not asyncio.get_running_loop():
            return Landing.REFUSED
        await asyncio.wait((self._landed,), timeout=deadline_s)
        return self._landed.result() if self._landed.done() else Landing.REFUSED


class Flights:
    """Flights under way, by key. Use from one event loop at a time."""

    def __init__(self) -> None:
        self._under_way: dict[str, Flight] = {}
        self._solo_until_ms: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._under_way)

    def under_way(self, key: str) -> Flight | None:
        return self._under_way.get(key)

    def lead(self, key: str) -> Flight:
        """Begin a flight that others can follow."""
        flight = self._under_way[key] = Flight(self, key)
        return flight

    def forget(self, key: str, flight: Flight) -> None:
        if self._under_way.get(key) is flight:
            del self._under_way[key]

    def solo(self, key: str, *, now_ms: int) -> bool:
        """Whether requests for this key run on their own for now."""
        until_ms = self._solo_until_ms.get(key)
        if until_ms is None:
            return False
        if until_ms <= now_ms:
            del self._solo_until_ms[key]
            return False
        return True

    def go_solo(self, key: str, *, now_ms: int) -> None:
        self._solo_until_ms[key] = now_ms + SOLO_MS
        self._solo_until_ms.move_to_end(key)
        while len(self._solo_until_ms) > _SOLO_LIMIT:
            self._solo_until_ms.popitem(last=False)
