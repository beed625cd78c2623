"""Freezing of long-lived objects, which keeps them away from Python's cyclic garbage collector.

A full collection walks every object that can hold references. In a loaded FastAPI app each such pause takes 60 to 100
milliseconds. A million registrations cost hundreds of milliseconds, the writes of a few seconds 50 to 100. Objects that exist
when the work of a process begins last as long as the process. Such objects are frozen once, so the collector no longer sees them.

Registrations and retained writes live long and are freed by reference counting. A process that only matches therefore switches
full collections off. Young objects are collected as always. After a number of new objects the survivors are frozen too. Cycles
that are garbage at the start are collected; later cycles only while they are young.

In a process that serves requests most young objects belong to requests under way. Their end frees them. A collection after every
700 new objects walks them again and again for nothing. Rarer collections find more: with Python's own second threshold the middle
generation would grow to 110,000 objects, a pause of 40 to 110 ms. The middle generation is therefore collected every second time.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import Final

_NEVER: Final = 1 << 30
_YOUNG: Final = 1
"""The generations that are collected before the survivors are frozen: a few thousand objects, a millisecond."""
_ALL: Final = 2
_SUBSCRIPTIONS: Final = 250
"""Subscriptions that are frozen together. A socket with a query of its own counts twice, and has 340 objects."""
_TURNOVER: Final = 3
"""Frozen subscriptions for each live one at which a thaw is due."""


_OFTEN: Final = frozenset({700, 2_000})
"""Python's own thresholds for a collection of young objects, in new objects: until 3.12, and from 3.13."""
_SELDOM: Final = 10_000
_OWN_OLDER: Final = [10, 10]
"""Python's own thresholds for the two older generations, in collections of the generation before."""
_IN_SMALL_PARTS: Final = 1, 50
"""The middle generation is collected every second time, a fifth of the pause; the oldest one about as often as before."""
_BESIDE_SUBSCRIPTIONS: Final = 2_500, 1, 200
"""Thresholds while there are many subscriptions. Each write leaves some 25 objects in the result and in its history, so young
objects survive. A collection of 20,000 of them takes 15 to 30 ms, of 5,000 it takes 4 to 8."""


_OF_PYTHON: Final = 1_000
"""Frozen objects that may be Python's own: 3.12 begins with 375. An application that freezes has more objects."""


_eased = False
"""Whether the objects of this process were frozen by ease_once()."""


def freeze_loaded() -> None:
    """Collect garbage, and hide all objects that the process has loaded so far from the collector. Takes 60 ms and more."""
    gc.collect()
    gc.freeze()


def ease_once() -> None:
    """Do the same in a process that serves requests, and from then on collect its young objects less often.

    Does nothing if the application has frozen objects: it has then decided already which ones are long-lived. Thresholds that are
    not Python's own stay.
    """
    global _eased
    if gc.get_freeze_count() > _OF_PYTHON:
        return
    freeze_loaded()
    _eased = True
    young, *older = gc.get_threshold()
    if young in _OFTEN:
        in_parts = older == _OWN_OLDER and sys.version_info < (3, 14)  # later versions count otherwise
        gc.set_threshold(_SELDOM, *(_IN_SMALL_PARTS if in_parts else older))


class SubscriptionFreezing:
    """Freezer of a process that serves requests: hides its subscriptions from the collector as they become many. Thread-safe.

    10,000 live queries with a socket each are three million objects. A full collection that walks all of them stops the process
    for seconds. Acts only where ease_once() has frozen the loaded objects.

    The first freeze also makes collections of young objects smaller and more frequent.

    A frozen cycle that becomes garbage stays until the thaw, which is a full collection. The thaw comes when two of three
    subscriptions that were frozen since the last thaw have ended.

    every: number of subscriptions after which to freeze.
    """

    __slots__ = ("_begun", "_every", "_frozen", "_live", "_lock", "_loose", "_up_to")

    def __init__(self, every: int = _SUBSCRIPTIONS) -> None:
        self._lock = threading.RLock()  # a finalizer that a collection runs may end a subscription
        self._every = every
        self._begun = self._live = 0
        self._loose = 0  # live ones that are not frozen
        self._up_to = 0  # number of the youngest frozen one
        self._frozen = 0  # since the last thaw

    def begun(self) -> int:
        """Count a subscription that has begun. Returns its number. O(1), but some 10 milliseconds every so often."""
        with self._lock:
            self._begun += 1
            self._live += 1
            self._loose += 1
            number, due = self._begun, self._loose >= self._every and _eased
            thaws = due and self._note_freeze()
        if due:
            _freeze_all(thaws=thaws)
        return number

    def ended(self, number: int) -> None:
        """Count a subscription that has ended.

        number: of begun().
        """
        with self._lock:
            self._live -= 1
            self._loose -= number > self._up_to

    def _note_freeze(self) -> bool:
        """Count all live subscriptions as frozen. Returns whether a thaw is due. The caller holds the lock."""
        self._frozen += self._loose
        self._loose, self._up_to = 0, self._begun
        thaws = self._frozen > _TURNOVER * self._live
        if thaws:
            self._frozen = self._live
        return thaws


def _freeze_all(*, thaws: bool) -> None:
    """Freeze the present objects. Without locks: a collection runs finalizers.

    thaws: after a collection of all objects, frozen ones too; otherwise of young ones.
    """
    if thaws:
        gc.unfreeze()
    gc.collect(_ALL if thaws else _YOUNG)
    gc.freeze()
    if gc.get_threshold() == (_SELDOM, *_IN_SMALL_PARTS):
        gc.set_threshold(*_BESIDE_SUBSCRIPTIONS)


SUBSCRIPTIONS: Final = SubscriptionFreezing()
"""Of this process, because the collector is the process's too."""


class GcFreezing:
    """Freezer of a process's long-lived objects: hides them from the collector as they become many."""

    __slots__ = ("_every", "_new")

    def __init__(self, every: int) -> None:
        """Switch off full collections and freeze the present objects, unless `every` is 0.

        every: number of new objects after which to freeze; 0: never.
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
