"""Freezing of long-lived objects, which keeps them away from Python's cyclic garbage collector.

A full collection walks every object that can hold references: over a million registrations a pause of hundreds of
milliseconds, over the writes of a few seconds one of 50 to 100. Registrations and retained writes live long and are freed
by reference counting. So full collections are switched off, the young objects are collected as always, and after every so
many new ones whatever has outlived that is moved out of the collector's sight. This concerns the whole process, so only
a process that does nothing but matching should ask for it: cycles that are garbage at the start are collected, later ones
only if they are so while they are young.
"""

from __future__ import annotations

import gc
from typing import Final

_NEVER: Final = 1 << 30
_YOUNG: Final = 1
"""The generations that are collected before what is left is frozen: a few thousand objects, a millisecond."""


class GcFreezing:
    """Moves the long-lived objects of a process out of the collector's sight as they become many."""

    __slots__ = ("_every", "_new")

    def __init__(self, every: int) -> None:
        """Switch off full collections and freeze what there is, unless `every` is 0.

        every: after how many new objects to freeze; 0: never.
        """
        self._every = every
        self._new = 0
        if every:
            gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
            gc.collect()
            gc.freeze()  # what the process has loaded so far is long-lived as well

    def allocated(self) -> None:
        """Count one more long-lived object. O(1), but about a millisecond every so often."""
        if not self._every:
            return
        self._new += 1
        if self._new >= self._every:
            self._new = 0
            gc.collect(_YOUNG)
            gc.freeze()
