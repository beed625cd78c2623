"""Faults in background services: an unforeseen exception wherever a task waits, and in each function that it enters.

A fault strikes every place once, when the service passes it for the first time. A service is struck, restarted,
gets further, and is struck again, until it has been struck everywhere.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import quaestor
from quaestor.runtime.supervision import service as service_module
from quaestor.runtime.supervision.supervisor import KeptTask, KeptThread, Supervisor

_FRAMES = 20
CODE = str(Path(quaestor.__file__).parent)
NEUTRAL = (
    *("/runtime/supervision/", "/observability/", "/capture/listener_failures.py", "/runtime/parts.py"),
    *("/errors.py", "/clock.py", "/testing/"),
)
"""Code that services share with the code that counts their failures."""
SWALLOWING = ("pymongo/monitoring.py",)
"""Code of others that calls listeners, prints what they raise, and goes on."""


class InjectedError(Exception):
    """A fault that no service foresees."""


class Faults:
    """Faults of the services with some names. Services that run already are not struck.

    struck: the places that were struck so far, as file:line.
    stacks: the stack of each, to find out why no failure names it.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self.struck: list[str] = []
        self.stacks: dict[str, str] = {}
        self.armed = True
        self._lock = threading.Lock()

    def strikes(self, place: str) -> bool:
        """Whether to strike here: the first time only."""
        with self._lock:
            if not self.armed or place in self.struck:
                return False
            self.struck.append(place)
            self.stacks[place] = "".join(traceback.format_stack(limit=_FRAMES))
            return True

    def _unraisable(self, otherwise: Callable[[Any], object], what: Any) -> None:
        """Forget a strike in a finalizer, for instance of a generator that was left: no code can catch what that raises."""
        if not isinstance(what.exc_value, InjectedError):
            otherwise(what)
            return
        with self._lock:
            self.struck = [place for place in self.struck if place != str(what.exc_value)]

    def trace(self) -> None:
        """Strike this thread in the functions that it enters from now on."""
        sys.settrace(self._entered)

    def _entered(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _ours(frame) and not (_resumed(frame) or _swallowed(frame)):
            place = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_firstlineno} {frame.f_code.co_name}"
            if self.strikes(place):
                raise InjectedError(place)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Strike the services that are started from now on. Restarts follow at once."""
        monkeypatch.setattr(service_module, "FIRST_PAUSE_S", 0.001)
        monkeypatch.setattr(service_module, "LONGEST_PAUSE_S", 0.01)
        monkeypatch.setattr(sys, "unraisablehook", partial(self._unraisable, sys.unraisablehook))
        keep, thread = Supervisor.keep, Supervisor.thread

        def struck_keep(
            supervisor: Supervisor, name: str, work: Callable[[], Awaitable[object]], **named: Any
        ) -> KeptTask:
            if name in self.names:
                return keep(supervisor, name, lambda: _StruckTask(work(), self), **named)
            return keep(supervisor, name, work, **named)

        def struck_thread(
            supervisor: Supervisor, name: str, body: Callable[[threading.Event], object], **named: Any
        ) -> KeptThread:
            if name in self.names:
                return thread(supervisor, name, _StruckThread(body, self), **named)
            return thread(supervisor, name, body, **named)

        monkeypatch.setattr(Supervisor, "keep", struck_keep)
        monkeypatch.setattr(Supervisor, "thread", struck_thread)


class _StruckTask:
    """Runs a coroutine, and raises in it wherever it waits."""

    def __init__(self, work: Any, faults: Faults) -> None:
        self._work = work
        self._faults = faults

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        try:
            waits = self._traced(next, steps)
            while True:
                place = _place_of(self._work)
                if place is not None and self._faults.strikes(place):
                    if asyncio.isfuture(waits):
                        waits.cancel()  # as a cancellation does: what nobody awaits any more is not to fail later
                    waits = self._traced(steps.throw, InjectedError(place))
                    continue
                try:
                    reply = yield waits
                except BaseException as error:
                    waits = self._traced(steps.throw, error)
                else:
                    waits = self._traced(steps.send, reply)
        except StopIteration as over:
            return over.value

    def _traced(self, step: Callable[[Any], Any], argument: Any) -> Any:
        """One step of the coroutine, which is struck in the functions that it enters."""
        self._faults.trace()
        try:
            return step(argument)
        finally:
            sys.settrace(None)


def _place_of(work: Any) -> str | None:
    """The innermost place in the project's code at which a coroutine waits."""
    place = None
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        if frame is not None and _ours(frame):
            place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return place


def _resumed(frame: FrameType) -> bool:
    """Whether a coroutine goes on: a strike would take the place of an error that is just being thrown into it."""
    return bool(frame.f_code.co_flags & inspect.CO_COROUTINE) and frame.f_lineno != frame.f_code.co_firstlineno


def _swallowed(frame: FrameType) -> bool:
    """Whether the caller swallows what this function raises, so that only its own code can catch a failure."""
    caller = frame.f_back
    return caller is not None and caller.f_code.co_filename.endswith(SWALLOWING)


def _ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(CODE) and not any(part in name for part in NEUTRAL)


class _StruckThread:
    """Runs the body of a thread, and raises wherever it enters a function of the project."""

    def __init__(self, body: Callable[[threading.Event], object], faults: Faults) -> None:
        self._body = body
        self._faults = faults

    def __call__(self, stop: threading.Event) -> object:
        threading.current_thread().struck_by = self._faults  # type: ignore[attr-defined]
        self._faults.trace()
        try:
            return self._body(stop)
        finally:
            sys.settrace(None)


def pardon_orphans() -> None:
    """Ignore what tasks raise that a library made for its own await: a strike there leaves them, as no real failure does.

    `asyncio.wait_for` of Python 3.11 makes such tasks. Tasks of the project are not ignored.
    """
    loop = asyncio.get_running_loop()
    otherwise = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        task = context.get("future")
        code = getattr(task.get_coro(), "cr_code", None) if isinstance(task, asyncio.Task) else None
        if code is None or code.co_filename.startswith(CODE):
            loop.default_exception_handler(context) if otherwise is None else otherwise(loop, context)

    loop.set_exception_handler(handle)


def rearm(_: object = None) -> None:
    """Go on striking this thread: a fault that its service has caught itself has ended the tracing. An observer of failures."""
    struck = getattr(threading.current_thread(), "struck_by", None)
    if struck is not None:
        struck.trace()
