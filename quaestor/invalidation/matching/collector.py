"""Keep registrations away from Python's cyclic garbage collector.

A full collection walks every object that can hold references; over a million registrations that is a pause of hundreds of
milliseconds. Registrations live long and are freed by reference counting, so after every so many new ones whatever is
alive is moved out of the collector's sight. This concerns the whole process, so only a process that does nothing but
matching should ask for it: cycles that are garbage at that moment are collected first, later ones among frozen objects
never.
"""

from __future__ import annotations

import gc


class Shield:
    """every: after how many new objects to freeze; 0: never."""

    __slots__ = ("_every", "_new")

    def __init__(self, every: int) -> None:
        self._every = every
        self._new = 0
        if every:
            _freeze()  # what the process has loaded so far is long-lived as well

    def grew(self) -> None:
        """One more long-lived object. Every so often this takes a collection of what came since, a few milliseconds."""
        if not self._every:
            return
        self._new += 1
        if self._new >= self._every:
            self._new = 0
            _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()
