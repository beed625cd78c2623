"""Compiled patterns of this process, within a budget of bytes, however many queries use them.

Users of a pattern look it up by name each time; a dropped one is compiled again. The engines' own caches count patterns
instead of bytes, so they are bypassed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

ENGINES_BYTES: Final = 64 * 1024 * 1024
"""Budget of all compiled patterns of a process."""
PATTERNS_BYTES: Final = 8 * 1024 * 1024
"""Budget of the data about patterns without an engine."""


class _Kept(Generic[T]):
    """A kept value.

    used: it was requested since its last turn to leave.
    """

    __slots__ = ("size_bytes", "used", "value")

    def __init__(self, value: T, size_bytes: int) -> None:
        self.value = value
        self.size_bytes = size_bytes
        self.used = False


class WithinBytes(Generic[T]):
    """Cache within a budget of bytes: the oldest leaves, unless it was used since its last turn (second chance). Thread-safe.

    used_bytes: of the kept values, at most budget_bytes.
    made: number of values that had to be made.
    """

    def __init__(self, *, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._kept: OrderedDict[Hashable, _Kept[T]] = OrderedDict()
        self._lock = threading.Lock()
        self.used_bytes = 0
        self.made = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """Return the value under this name, made now if there is none. O(1), without a lock if it is there.

        make: returns the value with its bytes; called outside of the lock, so perhaps twice.
        """
        kept = self._kept.get(name)
        if kept is not None:
            kept.used = True
            return kept.value
        value, size_bytes = make()
        with self._lock:
            self.made += 1
            self._remove(name)
            if size_bytes <= self._budget_bytes:
                self._make_room(size_bytes)
                self._kept[name] = _Kept(value, size_bytes)
                self.used_bytes += size_bytes
        return value

    def _make_room(self, size_bytes: int) -> None:
        chances = len(self._kept)
        while self.used_bytes + size_bytes > self._budget_bytes:
            name, kept = next(iter(self._kept.items()))
            if kept.used and chances > 0:
                chances -= 1
                kept.used = False
                self._kept.move_to_end(name)
            else:
                self._remove(name)

    def _remove(self, name: Hashable) -> None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            self.used_bytes -= kept.size_bytes

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self.used_bytes = 0
