"""Freezing of long-lived objects, which keeps them away from Python's cyclic garbage collector.

A full collection walks every object that can hold references: over what a FastAPI app has loaded a pause of 60 to 100
milliseconds, again and again, over a million registrations one of hundreds, over the writes of a few seconds one of 50 to
100. What a process has loaded when its work begins lasts as long as the process: it is moved out of the collector's sight once.

Registrations and retained writes live long and are freed by reference counting. So where a process does nothing but matching
full collections are switched off, the young objects are collected as always, and after every so many new ones whatever has
outlived that is frozen too: cycles that are garbage at the start are collected, later ones only if they are so while they are
young.

In a process that serves requests the young objects are mostly those of requests under way, which go by themselves when these
are answered: collecting them after every 700 new ones walks them again and again for nothing.
"""

from __future__ import annotations

import gc
from typing import Final

_NEVER: Final = 1 << 30
_YOUNG: Final = 1
"""The generations that are collected before what is left is frozen: a few thousand objects, a millisecond."""


_OFTEN: Final = frozenset({700, 2_000})
"""After so many new objects Python collects the young ones where nobody has said otherwise; until 3.12, and from 3.13."""
_SELDOM: Final = 10_000


def freeze_loaded() -> None:
    """Collect what is garbage, and move all that a process has loaded so far out of the collector's sight. 60 ms and more."""
    gc.collect()
    gc.freeze()


def ease_once() -> None:
    """The same in a process that serves requests, whose young objects are collected less often from then on.

    Nothing, if anything is frozen: then somebody has decided already what of this process is long-lived. A threshold that is
    not Python's own stays.
    """
    if gc.get_freeze_count():
        return
    freeze_loaded()
    young, *older = gc.get_threshold()
    if young in _OFTEN:
        gc.set_threshold(_SELDOM, *older)


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
