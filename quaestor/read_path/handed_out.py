"""Which keys were handed out a moment ago, or are being sent right now, with leave to keep them.

A purge may overtake such an answer on its way to a CDN. Two dictionaries that take turns: noting costs one assignment, and
nothing is kept longer than two windows.
"""

from __future__ import annotations


class HandedOut:
    """window_ms: how long an answer counts as on its way after it was sent."""

    def __init__(self, *, window_ms: int) -> None:
        self._window_ms = window_ms
        self._current: dict[str, int] = {}
        self._previous: dict[str, int] = {}
        self._turn_at_ms = 0
        self._sending: dict[str, int] = {}

    def begin(self, key: str) -> None:
        """An answer is about to be sent; end() follows, whatever happens."""
        self._sending[key] = self._sending.get(key, 0) + 1

    def end(self, key: str, *, now_ms: int) -> None:
        left = self._sending.get(key, 1) - 1
        if left:
            self._sending[key] = left
        else:
            self._sending.pop(key, None)
        if now_ms >= self._turn_at_ms:
            self._previous = self._current if now_ms < self._turn_at_ms + self._window_ms else {}
            self._current = {}
            self._turn_at_ms = now_ms + self._window_ms
        self._current[key] = now_ms

    def recently(self, key: str, *, now_ms: int) -> bool:
        if key in self._sending:
            return True
        at_ms = self._current.get(key, self._previous.get(key))
        return at_ms is not None and now_ms - at_ms <= self._window_ms
