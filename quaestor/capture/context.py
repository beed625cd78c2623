"""The recording of the request that the running code belongs to, found through a context variable.

The variable holds a slot, not the recorder. A task that outlives the request then keeps a slot alive, not the request's
documents; the driver's own background tasks, for example, inherit the context of the client's first user. The log of writes stays
in the slot, so that a write in the context of a request after its answer is noticed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from quaestor.capture.left_behind import LeftBehind
from quaestor.capture.recorder import DEFAULT_CLOCK_WINDOW_MS, Recorder
from quaestor.capture.write_log import WriteLog
from quaestor.clock import Clock, system_clock
from quaestor.model import Uncacheable


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Slot:
    recorder: Recorder | None
    writes: WriteLog | None = None


_NO_REQUEST = _Slot(None)
_NOT_RECORDED = _Slot(None)
_slot: ContextVar[_Slot] = ContextVar("quaestor_recorder", default=_NO_REQUEST)
_recorders: dict[int, Recorder] = {}


def current() -> Recorder | None:
    """Return the recorder of the request that this code runs for, or None."""
    return _slot.get().recorder


def heard() -> tuple[Recorder | None, WriteLog | None]:
    """Return the recorder of the request that this code runs for, and the request's log of writes, also after its answer."""
    slot = _slot.get()
    return slot.recorder, slot.writes


def heard_by(capture: object) -> tuple[Recorder | None, WriteLog | None]:
    """Return the recorder and the log of writes of the request that this code runs for; or None for each. The recorder is
    None also if the capture of another Quaestor in this process feeds it."""
    slot = _slot.get()
    recorder = slot.recorder
    if recorder is not None and recorder.capture is not capture and recorder.capture is not None:
        recorder = None
    return recorder, slot.writes


def possible_recordings() -> Iterable[Recorder]:
    """Return the recordings that a read in the calling thread may belong to although its context leads to none.

    `loop.run_in_executor` and bare threads do not hand over the context, so a read there may belong to any request under way.
    Empty for the main thread, for threads that run an event loop, for anyio's workers (they receive a context) and
    inside not_recording(). O(1) while nothing is recorded.
    """
    if not _recorders or _slot.get() is not _NO_REQUEST:
        return ()
    thread = threading.current_thread()
    if thread is threading.main_thread() or thread.name.startswith("AnyIO worker") or _runs_a_loop():
        return ()
    return list(_recorders.values())


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def not_recording() -> NotRecording:
    """Declare that this context belongs to no recorded request, whatever thread it runs in."""
    return NotRecording()


class NotRecording:
    """The block of not_recording(); a class, because every miss would pay for a generator."""

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _slot.set(_NOT_RECORDED)

    def __exit__(self, *_: object) -> None:
        _slot.reset(self._token)


@contextmanager
def logging_writes() -> Iterator[WriteLog]:
    """Log writes in this context, in the tasks it starts and in the threads it hands its context to. Reads are not recorded, as
    in not_recording()."""
    slot = _Slot(None, WriteLog())
    assert slot.writes is not None
    token = _slot.set(slot)
    try:
        yield slot.writes
    finally:
        slot.writes = None
        _slot.reset(token)


def noting_writes() -> NotingWrites:
    """Log writes as logging_writes() does, and later writes in the context of the block too, as recording() does."""
    return NotingWrites()


class NotingWrites:
    """The block of noting_writes(); a class for the same reason."""

    __slots__ = ("_token",)

    def __enter__(self) -> WriteLog:
        writes = WriteLog()
        self._token = _slot.set(_Slot(None, writes))
        return writes

    def __exit__(self, *_: object) -> None:
        _slot.reset(self._token)
        del self._token


def recording(
    *, clock_window_ms: int = DEFAULT_CLOCK_WINDOW_MS, capture: object | None = None, clock: Clock = system_clock
) -> Recording:
    """Record the commands run in this context, in the tasks it starts and in the threads it hands its context to.

    Tasks started earlier (a worker that takes jobs from a queue) are not seen: uncacheable() is for them. A read in a
    thread that received no context (`loop.run_in_executor`) makes every recording under way uncacheable.
    After the block no read is recorded any more, not even of tasks that the block started. Their writes are still logged.

    clock_window_ms, capture, clock: see Recorder.
    """
    return Recording(Recorder(clock_window_ms, capture, clock=clock))


class Recording:
    """The block of one recording; a class, because every miss would pay for a generator."""

    __slots__ = ("_recorder", "_slot", "_token")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._slot: _Slot | None = None

    def __enter__(self) -> Recorder:
        recorder = self._recorder
        outer = _slot.get().recorder
        if outer is not None:
            # The inner recording may end in a cached answer, whose reads the outer one does not see.
            outer.refuse(Uncacheable.UNREADABLE, "a recording inside this one")
        self._slot = _Slot(recorder, recorder.writes)
        self._token = _slot.set(self._slot)
        _recorders[id(recorder)] = recorder
        return recorder

    def left_behind(self) -> LeftBehind:
        """Return the work that still runs in the context of the block. Called once, after the block, on its event loop."""
        assert self._slot is not None, "the block has not begun, or was asked before"
        slot, self._slot = self._slot, None
        return LeftBehind(slot, _slot, _NOT_RECORDED)

    def __exit__(self, *_: object) -> None:
        del _recorders[id(self._recorder)]
        assert self._slot is not None
        self._slot.recorder = None
        _slot.reset(self._token)
        del self._token


def uncacheable(reason: str = "the handler said so") -> None:
    """Do not cache the response to the current request: it depends on something that Quaestor cannot see.

    reason: for logs and explanations, not for clients.

    For handlers that read another database, a file, a remote API, or the clock. Outside a recorded request: no effect.
    """
    recorder = current()
    if recorder is not None:
        recorder.refuse(Uncacheable.DECLARED, reason)
