"""Admission policy of the memory store: W-TinyLFU by bytes (Einziger, Friedman, Manes: TinyLFU, ACM ToS 2017).

A new entry spends its first time in a small window, in order of arrival. When it leaves the window, its popularity decides. The
entry enters the main part only if its demand exceeds that of all entries together that would have to leave. A scan of pages,
each requested once, therefore passes through the window and leaves the main part as it is.

The main part is Moka's. Its frequency sketch also remembers absent entries, ages by itself, and weighs by bytes. Moka costs 5 MB
and is loaded when the first entry leaves the window. Nothing is lost until then, because Moka counts nothing before its main
part is half full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from quaestor.first_use import FirstUse

if TYPE_CHECKING:
    import moka_py
else:
    moka_py = FirstUse("moka_py")

WINDOW_SHARE = 16
"""Divisor of the budget that gives the window; larger entries are judged at once."""


class MemoryAdmission:
    """Admission policy over keys and sizes only. Use from one thread. A call costs some 3 us, touch() 0.3 us.

    budget_bytes: of window and main part together.
    """

    def __init__(self, *, budget_bytes: int) -> None:
        self._window_budget_bytes = budget_bytes // WINDOW_SHARE
        self._main_budget_bytes = budget_bytes - self._window_budget_bytes
        self.clear()

    def clear(self) -> None:
        """Forget everything, popularity included."""
        self._window: OrderedDict[str, int] = OrderedDict()
        self._window_bytes = 0
        self._refused: list[str] = []
        self._main: moka_py.Moka[str, int] | None = None
        self.touch: Callable[[str], object] = _uncounted
        """touch(key): note a request for the key, whether its entry is kept or not."""

    def _begin(self) -> moka_py.Moka[str, int]:
        main: moka_py.Moka[str, int] = moka_py.Moka(
            self._main_budget_bytes, eviction_listener=self._left, weigher=lambda _, size_bytes: size_bytes
        )
        self._main, self.touch = main, main.get
        return main

    def _left(self, key: str, size_bytes: int, cause: str) -> None:
        if cause == "size":
            self._refused.append(key)

    def admit(self, key: str, size_bytes: int) -> list[str]:
        """Take in a new entry with one request. Return the keys that have to leave for it, possibly its own."""
        self.touch(key)
        if size_bytes > self._window_budget_bytes:
            return self._offer(key, size_bytes)
        self._window[key] = size_bytes
        self._window_bytes += size_bytes
        left: list[str] = []
        while self._window_bytes > self._window_budget_bytes:
            oldest, oldest_bytes = self._window.popitem(last=False)
            self._window_bytes -= oldest_bytes
            left += self._offer(oldest, oldest_bytes)
        return left

    def _offer(self, key: str, size_bytes: int) -> list[str]:
        main = self._main or self._begin()
        main.set(key, size_bytes)
        main.run_pending_tasks()
        left, self._refused = self._refused, []
        return left

    def remove(self, key: str) -> None:
        """Note that an entry has left; its popularity is remembered."""
        size_bytes = self._window.pop(key, None)
        if size_bytes is not None:
            self._window_bytes -= size_bytes
        elif self._main is not None:
            self._main.remove(key)


def _uncounted(key: str) -> None:
    """Count nothing: there is no main part yet."""
