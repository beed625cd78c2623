"""What one request has read and done so far, found by the listener through a context variable.

The variable holds a slot, not the recorder: a task that outlives the request (the driver's own background tasks inherit the
context of whoever used the client first) then keeps an empty slot alive and not the request's documents.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from quaestor.capture.commands import Understood
from quaestor.model import CapturedRead, Document, Reason, Uncacheable, Version

DEFAULT_CLOCK_WINDOW_MS = 300_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything a request read, in the order it asked, or why its response must not be cached.

    Cacheable exactly if `reasons` is empty; a Recorder adds NO_READS, so that "nothing known" is a reason as well.
    """

    reads: tuple[CapturedRead, ...]
    reasons: tuple[Reason, ...]


@dataclass(slots=True, eq=False)
class ReadInProgress:
    """One captured command, from its start to the last getMore of its cursor.

    ids: grows with the replies; None once it is known that the records cannot be told by them.
    last: the newest record, if it matters.
    cursor: the server's open cursor, 0 when the result has been read to its end.
    """

    understood: Understood
    operation_id: int | None
    primary: bool
    ids: list[Any] | None
    last: Document | None = None
    read_at: Version = 0
    cursor: int = 0
    duration_ms: float = 0.0
    waiting: int = 1
    failed: bool = False

    def captured(self) -> CapturedRead:
        assert self.understood.query is not None
        complete = self.ids is not None and not self.cursor
        return CapturedRead(
            query=self.understood.query,
            read_at=self.read_at,
            ids=tuple(self.ids or ()) if complete else None,
            last=self.last if complete else None,
            primary=self.primary,
            duration_ms=self.duration_ms,
        )


@dataclass(slots=True)
class Recorder:
    """Collects the commands of one request. May be fed from several threads at once.

    clock_window_ms: a point in time in a query that is closer to the request than this counts as "now".
    """

    clock_window_ms: int = DEFAULT_CLOCK_WINDOW_MS
    _reads: list[ReadInProgress] = field(default_factory=list)
    _reasons: dict[Reason, None] = field(default_factory=dict)
    _failed: dict[int | None, ReadInProgress] = field(default_factory=dict)
    _by_request: dict[Any, ReadInProgress] = field(default_factory=dict)
    _by_cursor: dict[Any, ReadInProgress] = field(default_factory=dict)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refuse(self, reason: Uncacheable, detail: str) -> None:
        """The response must not be cached. Later reads do not change that."""
        if self._closed:
            return
        self._reasons[Reason(reason, detail)] = None

    def begin(self, request: Any, read: ReadInProgress) -> None:
        """A read was sent; `request` identifies its reply. A retry takes the place of the attempt that failed."""
        with self._lock:
            if self._closed:
                return
            failed = self._failed.pop(read.operation_id, None)
            if failed is not None:
                self._reads.remove(failed)
            self._reads.append(read)
            self._by_request[request] = read

    def go_on(self, request: Any, cursor: Any) -> bool:
        """A getMore was sent. False if its cursor was not opened within this recording."""
        with self._lock:
            read = self._by_cursor.get(cursor)
            if read is None:
                return False
            read.waiting += 1
            self._by_request[request] = read
            return True

    def replied(
        self,
        request: Any,
        *,
        read_at: Version,
        ids: Sequence[Any] | None,
        last: Document | None = None,
        cursor: Any,
        cursor_id: int,
        duration_ms: float,
    ) -> None:
        """A reply arrived.

        ids: of the records in this batch; None if they cannot be told.
        last: the last of them, if it matters. Nobody changes either again.

        cursor: what go_on() will be asked for.
        cursor_id: 0 if the result ends here.
        """
        with self._lock:
            read = self._by_request.pop(request, None)
            if read is None:
                return
            read.waiting -= 1
            read.duration_ms += duration_ms
            if not read_at:
                self.refuse(Uncacheable.NO_OPERATION_TIME, "the reply has no operationTime: is this a replica set?")
            read.read_at = max(read.read_at, read_at)
            if ids is None:
                read.ids = None
            elif read.ids is not None and ids:
                read.ids.extend(ids)
                read.last = last
            read.cursor = cursor_id
            if cursor_id:
                self._by_cursor[cursor] = read

    def failed(self, request: Any) -> None:
        """The command behind `request` failed."""
        with self._lock:
            read = self._by_request.pop(request, None)
            if read is not None:
                read.waiting -= 1
                read.failed = True
                if read.operation_id is not None:
                    self._failed[read.operation_id] = read

    def awaits(self, request: Any) -> ReadInProgress | None:
        """The read that a reply to `request` belongs to."""
        return self._by_request.get(request)

    def close(self) -> None:
        """Nothing that is read from now on matters: keep none of it. An export may stream for hours."""
        with self._lock:
            self._closed = True
            self._reads.clear()
            self._failed.clear()
            self._by_request.clear()
            self._by_cursor.clear()

    def outcome(self, now_ms: int) -> Outcome:
        """What is known at this moment (ms since the epoch). Reads still under way count as failed."""
        with self._lock:
            reasons = dict(self._reasons)
            for read in self._reads:
                name = read.understood.description
                if read.failed:
                    reasons[Reason(Uncacheable.READ_FAILED, f"{name} failed")] = None
                elif read.waiting:
                    reasons[Reason(Uncacheable.READ_FAILED, f"{name} was not answered before the response")] = None
                if any(abs(instant - now_ms) <= self.clock_window_ms for instant in read.understood.instants):
                    reasons[Reason(Uncacheable.CLOCK, f"{name} names a time close to the request")] = None
            if not self._reads and not reasons:
                reasons[Reason(Uncacheable.NO_READS, "no read on a captured client")] = None
            return Outcome(reads=tuple(read.captured() for read in self._reads), reasons=tuple(reasons))


@dataclass(slots=True)
class _Slot:
    recorder: Recorder | None


_NO_REQUEST = _Slot(None)
_NOT_RECORDED = _Slot(None)
_slot: ContextVar[_Slot] = ContextVar("quaestor_recorder", default=_NO_REQUEST)
_recorders: dict[int, Recorder] = {}


def current() -> Recorder | None:
    """The recorder of the request that this code runs for, or None."""
    return _slot.get().recorder


def suspects() -> Iterable[Recorder]:
    """The recordings that a read in the calling thread may belong to although its context leads to none.

    `loop.run_in_executor` and bare threads do not hand over the context, so a read there may be of any request under way.
    Empty for the main thread, for threads that run an event loop, for anyio's workers (they are handed a context) and
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


@contextmanager
def not_recording() -> Iterator[None]:
    """What runs in this context belongs to no recorded request, whatever thread it runs in."""
    token = _slot.set(_NOT_RECORDED)
    try:
        yield
    finally:
        _slot.reset(token)


@contextmanager
def recording(*, clock_window_ms: int = DEFAULT_CLOCK_WINDOW_MS) -> Iterator[Recorder]:
    """Record the commands run in this context, in the tasks it starts and in the threads it hands its context to.

    Tasks started earlier (a worker that takes jobs from a queue) are not seen: uncacheable() is for them. A read in a
    thread that was not handed any context (`loop.run_in_executor`) makes every recording under way uncacheable.
    After the block nothing is recorded any more, not even by tasks that the block started.
    """
    outer = current()
    if outer is not None:
        # The inner recording may end in a cached answer, of whose reads the outer one sees nothing.
        outer.refuse(Uncacheable.UNREADABLE, "a recording inside this one")
    recorder = Recorder(clock_window_ms)
    slot = _Slot(recorder)
    token = _slot.set(slot)
    _recorders[id(recorder)] = recorder
    try:
        yield recorder
    finally:
        del _recorders[id(recorder)]
        slot.recorder = None
        _slot.reset(token)


def uncacheable(reason: str = "the handler said so") -> None:
    """Do not cache the response to the current request: it depends on something that Quaestor cannot see.

    For handlers that read another database, a file, a remote API, or the clock. Outside a recorded request: no effect.
    """
    recorder = current()
    if recorder is not None:
        recorder.refuse(Uncacheable.DECLARED, reason)
