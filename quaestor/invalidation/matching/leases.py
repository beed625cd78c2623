"""Leases of registrations, kept by the second of their end: a million leases cost one list entry each."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

_STEP_MS = 1_000


class Leases:
    """Ids of registrations by the second in which their lease ends.

    An id whose lease ended early is still returned at its second, unless `compact` removes it first. Call `compact` every
    second. Otherwise the ids of registrations that die young fill the memory until their leases end.
    """

    __slots__ = ("_ids", "_kept", "_steps", "_turn")

    def __init__(self) -> None:
        self._ids: dict[int, list[str]] = {}
        self._kept = 0
        self._steps: list[int] = []
        self._turn: list[int] = []

    def __len__(self) -> int:
        """Return the number of ids."""
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
        """Return the ids whose lease ended, up to a second late; each id once."""
        ids: list[str] = []
        while self._steps and (self._steps[0] + 1) * _STEP_MS <= now_ms:
            ids.extend(self._ids.pop(heappop(self._steps)))
        self._kept -= len(ids)
        return ids

    def compact(self, holds: Callable[[str, int], bool], *, most: int = 0, steps: int = 60) -> None:
        """Drop the ids without a lease from some of the seconds, in turn: the seconds of an hour once a minute.

        holds: whether this id has a lease that ends at or after these ms since the epoch. O(ids in those seconds).
        most: number of ids up to which the call does nothing, because a pass over living ids is wasted work.
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
                held = self._ids[step] = [name for name in ids if holds(name, begins_ms)]
                self._kept -= len(ids) - len(held)
