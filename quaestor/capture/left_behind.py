"""Work that a request leaves behind: tasks and threads that still run in its context after its handler has returned.

A context is a strong reference to the slot of its recording. Once the slot is gone, no write can happen in the name of the
request any more. Tasks of the driver inherit the context of the client's first user, and belong to no request: they are detached.
Cancelled timers are detached too: asyncio keeps them, with their contexts, until their time would have come. uvloop keeps none.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from contextvars import Context, ContextVar
from itertools import chain, islice
from typing import Any, Final

_DRIVER: Final = ("pymongo", "motor", "gridfs")
_HANDED_BACK_S: Final = 0.005
"""Patience with a worker thread that has reported its result and still holds the context."""
_MOST_TIMERS: Final = 500
"""Timers that are looked at, at each end of the heap."""


class LeftBehind:
    """Work that one recording has left behind. Use from the event loop that ran the request.

    slot: of the recording; only contexts may refer to it.
    variable: the context variable that holds slots.
    nobody: the slot of a context that belongs to no request.
    """

    def __init__(self, slot: Any, variable: ContextVar[Any], nobody: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self._slot = weakref.ref(slot, self._collected)
        self._variable = variable
        self._nobody = nobody

    @property
    def over(self) -> bool:
        """Whether no code can act in the context of the request any more."""
        return self._slot() is None

    async def tasks(self) -> list[asyncio.Task[Any]]:
        """Return tasks that the request has begun and that still run; [] at once if nothing of the request is left.

        Waits a moment for threads that are about to release the context.
        """
        if self.over:
            return []
        self._detach_cancelled_timers()  # the usual case: PyMongo's asynchronous client leaves one for each command
        if self.over:
            return []
        tasks = self._spawned()
        if not (tasks or self.over):
            with suppress(TimeoutError):
                async with asyncio.timeout(_HANDED_BACK_S):
                    await self._gone.wait()
        return tasks

    def _spawned(self) -> list[asyncio.Task[Any]]:
        spawned = []
        for task in asyncio.all_tasks():
            context = _context_of(task)
            if context is None or not self._is_of_request(context):
                continue
            if _of_driver(task):
                with suppress(RuntimeError):  # the task is running at this moment
                    self._detach(context)
            elif task is not asyncio.current_task():
                spawned.append(task)
        return spawned

    def _detach_cancelled_timers(self) -> None:
        """Detach timers until nothing is left of the request.

        asyncio keeps timers in a heap. Timers of this request are young, so they are near its end, or near its beginning where
        others are due much later.
        """
        timers = getattr(self._loop, "_scheduled", ())  # of asyncio's own loops
        others = max(0, len(timers) - _MOST_TIMERS)
        ends = islice(reversed(timers), _MOST_TIMERS), islice(timers, min(others, _MOST_TIMERS))
        for timer in chain(*ends):
            context: Context | None = getattr(timer, "_context", None)
            if context is None or not timer.cancelled() or not self._is_of_request(context):
                continue
            if sys.getrefcount(context) == _OWNED:
                self._detach(context)
                if self.over:
                    return

    def _is_of_request(self, context: Context) -> bool:
        return context.get(self._variable) is self._slot()

    def _detach(self, context: Context) -> None:
        context.run(self._variable.set, self._nobody)

    def _collected(self, _: object) -> None:
        """Report that the slot is gone. Called in the thread that has dropped the last reference."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._gone.set)


def _context_of(task: asyncio.Task[Any]) -> Context | None:
    get_context = getattr(task, "get_context", None)  # since Python 3.12
    if get_context is not None:
        context: Context = get_context()
        return context
    held: Iterator[Context] = (referent for referent in gc.get_referents(task) if isinstance(referent, Context))
    return next(held, None)


def _of_driver(task: asyncio.Task[Any]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _DRIVER


def _references(holder: list[object]) -> int:
    context = holder[0]
    return sys.getrefcount(context)


_OWNED: Final = _references([object()])
"""References to a context that one timer holds, and a variable of ours. Counting adds one, as versions have it."""
