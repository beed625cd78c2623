"""When registrations may be forgotten: by the second, so that a million of them cost a list entry each."""

from __future__ import annotations

from heapq import heappop, heappush

_STEP_MS = 1_000


class Leases:
    """Ids by the second in which their lease ends. A lease that was given up earlier is simply handed out for nothing."""

    __slots__ = ("_ids", "_steps")

    def __init__(self) -> None:
        self._ids: dict[int, list[str]] = {}
        self._steps: list[int] = []

    def add(self, registration_id: str, expires_at_ms: int) -> None:
        step = expires_at_ms // _STEP_MS
        if step not in self._ids:
            self._ids[step] = []
            heappush(self._steps, step)
        self._ids[step].append(registration_id)

    def over(self, now_ms: int) -> list[str]:
        """Ids whose lease ended more than up to a second ago; each is returned once."""
        ids: list[str] = []
        while self._steps and (self._steps[0] + 1) * _STEP_MS <= now_ms:
            ids.extend(self._ids.pop(heappop(self._steps)))
        return ids
