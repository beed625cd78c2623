"""Dependency index in memory, of a single process. The index ends with the process, like the entries that it describes.

The index is bounded. When it is full, no entry is added, so no more is cached, until copies have expired or were purged.
Entries without a copy outside give way first, because memory drops them by their registrations without help from the index.
A client that requests a quarter of a million URLs therefore cannot keep other clients' answers out of the cache.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from quaestor.errors import StoreError
from quaestor.model import Dependent
from quaestor.store.by_registration import ByRegistration

MAX_DEPENDENTS = 250_000
"""Largest number of dependents, about 250 MB; a dependent with long names counts as several."""
MAX_DEAD = 100_000
"""Largest number of remembered dead registrations, the youngest ones."""
DEAD_MS = 600_000
"""Time for which a dead registration is remembered, so that a late add() is detected."""
_UNCLAIMED = 0
"""Time of the claim of a dependent that was invalidated, and has no claimant yet."""

_Name = tuple[str, tuple[str, ...], tuple[str, ...]]


class MemoryIndex:
    """Dependency index in memory. Implements DependencyIndex. Use from one event loop. Every call is O(log n) a dependent.

    max_dependents: number of dependents with copies outside beyond which add() raises StoreError.
    max_dead: number of invalidated registrations that are remembered.
    """

    def __init__(self, *, max_dependents: int = MAX_DEPENDENTS, max_dead: int = MAX_DEAD) -> None:
        self._max_dependents = max_dependents
        self._max_dead = max_dead
        self._weight = 0
        self._dependents: dict[_Name, Dependent] = {}
        self._by_registration: ByRegistration[_Name] = ByRegistration()
        self._claimed_at_ms: dict[_Name, int] = {}
        self._dead: OrderedDict[str, int] = OrderedDict()
        self._inside: OrderedDict[_Name, None] = OrderedDict()
        """Dependents without a copy outside, the oldest first."""
        self._due: list[tuple[int, _Name]] = []
        """Heap of the times to check whether a dependent still has a living copy."""

    def __len__(self) -> int:
        return len(self._dependents)

    async def add(self, dependent: Dependent) -> None:
        """See DependencyIndex. Raises StoreError if no room can be made."""
        name = _name(dependent)
        known = self._dependents.get(name)
        if known is not None:
            until_ms = max(known.copies_until_ms, dependent.copies_until_ms)
            dependent = replace(dependent, copies_until_ms=until_ms)
        else:
            while self._weight >= self._max_dependents:
                if not self._make_room():
                    raise StoreError(
                        f"the dependency index is full: copies of {len(self._dependents)} entries are alive"
                    )
            self._weight += _weight(dependent)
            heapq.heappush(self._due, (dependent.copies_until_ms, name))
        self._dependents[name] = dependent
        if not dependent.urls:
            self._inside[name] = None
        for registration_id in dependent.registrations:
            self._by_registration.add(registration_id, name)
        if not self._dead.keys().isdisjoint(dependent.registrations):
            self._claimed_at_ms[name] = _UNCLAIMED

    def _make_room(self) -> bool:
        """Forget a dependent without a copy outside; return False if there is none."""
        if not self._inside:
            return False
        self._forget([next(iter(self._inside))])
        return True

    async def claim(self, registration_ids: Sequence[str], *, now_ms: int) -> list[Dependent]:
        """See DependencyIndex."""
        claimed: list[Dependent] = []
        for registration_id in registration_ids:
            self._dead[registration_id] = now_ms
            self._dead.move_to_end(registration_id)
            for name in self._by_registration.guarded(registration_id):
                if self._claimed_at_ms.get(name, _UNCLAIMED) == _UNCLAIMED:
                    self._claimed_at_ms[name] = now_ms
                    claimed.append(self._dependents[name])
        while len(self._dead) > self._max_dead:
            self._dead.popitem(last=False)
        return claimed

    async def settle(self, dependents: Sequence[Dependent]) -> None:
        """See DependencyIndex."""
        self._forget(_name(dependent) for dependent in dependents)

    async def reclaim(self, *, claimed_before_ms: int, now_ms: int) -> list[Dependent]:
        """See DependencyIndex. Forgets dependents without a living copy."""
        late = [name for name, at_ms in self._claimed_at_ms.items() if at_ms < claimed_before_ms]
        for name in late:
            self._claimed_at_ms[name] = now_ms
        self._sweep(now_ms)
        return [self._dependents[name] for name in late if name in self._dependents]

    def _sweep(self, now_ms: int) -> None:
        """Forget dependents without a living copy, unless they are claimed."""
        while self._due and self._due[0][0] < now_ms:
            _, name = heapq.heappop(self._due)
            dependent = self._dependents.get(name)
            if dependent is None or name in self._claimed_at_ms:
                continue  # gone, or gone once it is settled
            if dependent.copies_until_ms < now_ms:
                self._forget([name])
            else:
                heapq.heappush(self._due, (dependent.copies_until_ms, name))
        while self._dead and next(iter(self._dead.values())) < now_ms - DEAD_MS:
            self._dead.popitem(last=False)

    def _forget(self, names: Iterable[_Name]) -> None:
        for name in names:
            dependent = self._dependents.pop(name, None)
            self._weight -= 0 if dependent is None else _weight(dependent)
            self._claimed_at_ms.pop(name, None)
            self._inside.pop(name, None)
            for registration_id in () if dependent is None else dependent.registrations:
                self._by_registration.remove(registration_id, name)
        if len(self._due) > 2 * len(self._dependents) + 1_000:  # mostly dependents settled before they were due
            self._due = [(dependent.copies_until_ms, name) for name, dependent in self._dependents.items()]
            heapq.heapify(self._due)


def _name(dependent: Dependent) -> _Name:
    return (dependent.key, dependent.registrations, dependent.urls)


def _weight(dependent: Dependent) -> int:
    """Return the share of a dependent in max_dependents: 1, and more for names of kilobytes, because clients choose URLs."""
    return 1 + (len(dependent.key) + len(dependent.resource) + sum(map(len, dependent.urls))) // 1024
