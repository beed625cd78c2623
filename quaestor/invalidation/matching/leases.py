"""Leases of registrations, kept by the second in which they end, so that a million of them cost a list entry each."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

_STEP_MS = 1_000


class Leases:
    """Ids by the second in which their lease ends.

    A lease that was given up earlier is handed out for nothing, unless `compact` comes by first: call that every second, or
    those that die young fill the memory until their time is over.
    """

    __slots__ = ("_ids", "_kept", "_steps", "_turn")

    def __init__(self) -> None:
        self._ids: dict[int, list[str]] = {}
        self._kept = 0
        self._steps: list[int] = []
        self._turn: list[int] = []

    def __len__(self) -> int:
        """Number of ids that are kept."""
        return self._kept

    def add(self, registration_id: str, expires_at_ms: int) -> None:
        """Keep the lease of a registration."""
        step = expires_at_ms // _STEP_MS
        if step not in self._ids:
            self._ids[step] = []
            heappush(self._steps, step)
        self._ids[step].append(registration_id)
        self._kept += 1

    def over(self, now_ms: int) -> list[str]:
        """Ids whose lease ended more than up to a second ago; each is returned once."""
        ids: list[str] = []
        while self._steps and (self._steps[0] + 1) * _STEP_MS <= now_ms:
            ids.extend(self._ids.pop(heappop(self._steps)))
        self._kept -= len(ids)
        return ids

    def compact(self, holds: Callable[[str, int], bool], *, most: int = 0, steps: int = 60) -> None:
        """Drop the ids that hold no lease any more from some of the seconds, in turn: an hour's once a minute.

        holds: whether this id has a lease that ends at or after these ms since the epoch. O(ids in those seconds).
        most: nothing is done while no more than so many are kept: what lives is not to be looked at once a minute for nothing.
        """
        if self._kept <= most:
            return
        for _ in range(steps):
            if not self._turn:
                self._turn = list(self._ids)
                if not self._turn:
                    return
            step = self._turn.pop()
            if step in self._ids:
                begins_ms = step * _STEP_MS
                ids = self._ids[step]
                held = self._ids[step] = [one for one in ids if holds(one, begins_ms)]
                self._kept -= len(ids) - len(held)
