"""What one request has read and done so far, found by the listener through a context variable.

The variable holds a slot, not the recorder: a task that outlives the request (the driver's own background tasks inherit the
context of whoever used the client first) then keeps an empty slot alive and not the request's documents.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from quaestor.capture.commands import Understood
from quaestor.capture.snapshot import Reason
from quaestor.model import CapturedRead, Document, Uncacheable, Version

DEFAULT_CLOCK_WINDOW_MS = 300_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything a request read, in the order it asked, or why its response must not be cached.

    Cacheable exactly if `reasons` is empty; a Recorder adds NO_READS, so that "nothing known" is a reason as well.
    """

    reads: tuple[CapturedRead, ...]
    reasons: tuple[Reason, ...]


@dataclass(slots=True)
class ReadInProgress:
    """One captured command, from its start to the last getMore of its cursor.

    documents: grows with the replies; None once the records are known to be unusable.
    cursor: the server's open cursor, 0 when the result has been read to its end.
    """

    understood: Understood
    operation_id: int | None
    primary: bool
    documents: list[Document] | None
    read_at: Version = 0
    cursor: int = 0
    duration_ms: float = 0.0
    waiting: int = 1
    failed: bool = False

    def captured(self) -> CapturedRead:
        assert self.understood.query is not None
        complete = self.documents is not None and not self.cursor
        return CapturedRead(
            query=self.understood.query,
            read_at=self.read_at,
            documents=tuple(self.documents or ()) if complete else None,
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
    _by_request: dict[Any, ReadInProgress] = field(default_factory=dict)
    _by_cursor: dict[Any, ReadInProgress] = field(default_factory=dict)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refuse(self, reason: Uncacheable, detail: str) -> None:
        """The response must not be cached. Later reads do not change that."""
        self._reasons[Reason(reason, detail)] = None

    def begin(self, request: Any, read: ReadInProgress) -> None:
        """A read was sent; `request` identifies its reply. A retry takes the place of the attempt that failed."""
        with self._lock:
            if self._closed:
                return
            if read.operation_id is not None:
                for earlier in self._reads:
                    if earlier.failed and earlier.operation_id == read.operation_id:
                        self._reads.remove(earlier)
                        break
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
        documents: Sequence[Document] | None,
        cursor: Any,
        cursor_id: int,
        duration_ms: float,
    ) -> None:
        """A reply arrived. documents: of this batch, never changed by anyone again; None if they are not records.

        cursor: what go_on() will be asked for; cursor_id: 0 if the result ends here.
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
            if documents is None:
                read.documents = None
            elif read.documents is not None:
                read.documents.extend(documents)
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

    def awaits(self, request: Any) -> ReadInProgress | None:
        """The read that a reply to `request` belongs to."""
        return self._by_request.get(request)

    def close(self) -> None:
        """Nothing that is read from now on matters: keep none of it. An export may stream for hours."""
        with self._lock:
            self._closed = True
            self._reads.clear()
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


_EMPTY = _Slot(None)
_slot: ContextVar[_Slot] = ContextVar("quaestor_recorder", default=_EMPTY)


def current() -> Recorder | None:
    """The recorder of the request that this code runs for, or None."""
    return _slot.get().recorder


@contextmanager
def recording(*, clock_window_ms: int = DEFAULT_CLOCK_WINDOW_MS) -> Iterator[Recorder]:
    """Record the commands run in this context, in the tasks it starts and in the threads it hands its context to.

    Threads and tasks started earlier, and `loop.run_in_executor`, which does not hand over its context, are not seen.
    After the block nothing is recorded any more, not even by tasks that the block started.
    """
    outer = current()
    if outer is not None:
        # The inner recording may end in a cached answer, of whose reads the outer one sees nothing.
        outer.refuse(Uncacheable.UNREADABLE, "a recording inside this one")
    slot = _Slot(Recorder(clock_window_ms))
    assert slot.recorder is not None
    token = _slot.set(slot)
    try:
        yield slot.recorder
    finally:
        slot.recorder = None
        _slot.reset(token)


def uncacheable(reason: str = "the handler said so") -> None:
    """Do not cache the response to the current request: it depends on something that Quaestor cannot see.

    For handlers that read another database, a file, a remote API, or the clock. Outside a recorded request: no effect.
    """
    recorder = current()
    if recorder is not None:
        recorder.refuse(Uncacheable.DECLARED, reason)
