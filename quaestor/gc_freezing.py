"""Freezing of long-lived objects, which keeps them away from Python's cyclic garbage collector.

A full collection walks every object that can hold references: over what a FastAPI app has loaded a pause of 60 to 100
milliseconds, again and again, over a million registrations one of hundreds, over the writes of a few seconds one of 50 to
100. What a process has loaded when its work begins lasts as long as the process: it is moved out of the collector's sight once.

Registrations and retained writes live long and are freed by reference counting. So where a process does nothing but matching
full collections are switched off, the young objects are collected as always, and after every so many new ones whatever has
outlived that is frozen too: cycles that are garbage at the start are collected, later ones only if they are so while they are
young.
"""

from __future__ import annotations

import gc
from typing import Final

_NEVER: Final = 1 << 30
_YOUNG: Final = 1
"""The generations that are collected before what is left is frozen: a few thousand objects, a millisecond."""


def freeze_loaded() -> None:
    """Collect what is garbage, and move all that a process has loaded so far out of the collector's sight. 60 ms and more."""
    gc.collect()
    gc.freeze()


def freeze_loaded_once() -> None:
    """The same, unless anything is frozen: then somebody has decided already what of this process is long-lived."""
    if not gc.get_freeze_count():
        freeze_loaded()


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
            freeze_loaded()

    def allocated(self) -> None:
        """Count one more long-lived object. O(1), but about a millisecond every so often."""
        if not self._every:
            return
        self._new += 1
        if self._new >= self._every:
            self._new = 0
            gc.collect(_YOUNG)
            gc.freeze()
