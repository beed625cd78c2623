"""The record of one request's reads so far, and of the reasons not to cache its response."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quaestor.capture import clock_values
from quaestor.capture.clock_values import ClockValue
from quaestor.capture.commands import Understood
from quaestor.capture.result_digests import ResultDigest
from quaestor.capture.run_constants import RunQuery
from quaestor.capture.seen_constants import AskedText, SeenConstants
from quaestor.capture.write_log import WriteLog
from quaestor.clock import Clock, ReadClock, system_clock
from quaestor.fast_init import fast_init
from quaestor.model import CapturedRead, Document, Reason, Uncacheable, Version

if TYPE_CHECKING:
    from pymongo.monitoring import CommandStartedEvent

DEFAULT_CLOCK_WINDOW_MS = 300_000
"""See Recorder.clock_window_ms."""


@fast_init
@dataclass(frozen=True, slots=True)
class Outcome:
    """The reads of a request, in order, or the reasons why its response must not be cached.

    reads: of collections, views and any other namespace that a command can name.
    reasons: why not to cache, each once.
    valid_until_ms: when it is over without any write; None: never. A value in a query was then floored to a unit of the clock, or
        holds a part of the present time.
    run: constants of the reads, in the same order, for comparison with another run.

    Cacheable exactly if `reasons` is empty; a Recorder adds NO_READS, so that "nothing known" is a reason as well.
    """

    reads: tuple[CapturedRead, ...]
    reasons: tuple[Reason, ...]
    valid_until_ms: int | None = None
    run: tuple[RunQuery, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True)
class ConstantsOfRun:
    """Context in which the constants of a handler's run are judged.

    seen: the memory of the process.
    route: of the request.
    asked: the request's own text.
    """

    seen: SeenConstants
    route: Hashable
    asked: AskedText


@dataclass(slots=True, eq=False)
class ReadInProgress:
    """One captured command, from its start to the last getMore of its cursor.

    understood: the command.
    operation_id: the driver's, the same for a retry; None if it is unknown.
    primary: it went to a primary.
    ids: grows with the replies; None once it is known that ids do not identify the records.
    last: the newest record, if it matters.
    read_at: the newest operationTime of the replies, 0 before the first.
    cursor: the server's open cursor, 0 when the result has been read to its end.
    duration_ms: of all commands that were answered.
    unanswered: commands under way.
    failed: a command failed, and no retry has replaced it.
    digest: of the result so far; None: not wanted.
    follows: see RunQuery.
    """

    understood: Understood
    operation_id: int | None
    primary: bool
    ids: list[Any] | None
    last: Document | None = None
    read_at: Version = 0
    cursor: int = 0
    duration_ms: float = 0.0
    unanswered: int = 1
    failed: bool = False
    digest: ResultDigest | None = None
    follows: bool = False

    def captured(self, started_ms: int, now_ms: int) -> CapturedRead:
        """Return the read as far as it went; without its records unless all of them are known.

        started_ms, now_ms: the request's.
        """
        assert self.understood.query is not None
        complete = self.ids is not None and not self.cursor
        return CapturedRead(
            query=self.understood.query,
            read_at=self.read_at,
            ids=tuple(self.ids or ()) if complete else None,
            last=self.last if complete else None,
            primary=self.primary,
            duration_ms=self.duration_ms,
            digest=None if self.digest is None or self.cursor else self.digest.value(),
            clock=self._clock(started_ms, now_ms),
        )

    def _clock(self, started_ms: int, now_ms: int) -> ReadClock | None:
        if self.understood.query is None or self.understood.query.clock is None:
            return None
        declared = self.understood.declared_ms
        if not declared:
            return ReadClock(started_ms, now_ms, of_database=True)
        return ReadClock(min(declared), max(declared))


@dataclass(slots=True)
class Recorder:
    """Recorder of the commands of one request. Several threads may feed it at once.

    clock_window_ms: a point in time in a query, finer than a minute, that is closer to the request than this counts as "now".
    capture: only its clients are recorded; None: clients of any capture.
    writes: log of the request's writes.
    clock: clock of the cache.
    """

    clock_window_ms: int = DEFAULT_CLOCK_WINDOW_MS
    capture: object | None = None
    writes: WriteLog = field(default_factory=WriteLog)
    clock: Clock = system_clock
    _reads: list[ReadInProgress] = field(default_factory=list)
    _reasons: dict[Reason, None] = field(default_factory=dict)
    _failed: dict[int | None, ReadInProgress] = field(default_factory=dict)
    _by_request: dict[Any, ReadInProgress] = field(default_factory=dict)
    _by_cursor: dict[Any, ReadInProgress] = field(default_factory=dict)
    _unclaimed: dict[int, CommandStartedEvent] = field(default_factory=dict)
    _answered: bool = False
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def reading(self) -> bool:
        """Whether there was any read so far."""
        return bool(self._reads)

    def refuse(self, reason: Uncacheable, detail: str) -> None:
        """Note a reason not to cache the response. Later reads do not change that."""
        if self._closed:
            return
        self._reasons[Reason(reason, detail)] = None

    def sent(self, event: CommandStartedEvent) -> None:
        """Note a command of any client. The capture must claim it before anything else happens in its thread."""
        if not self._closed:
            self._unclaimed[id(event)] = event

    def claim(self, event: CommandStartedEvent) -> None:
        """Note that the command's client is captured."""
        self._unclaimed.pop(id(event), None)

    def begin(self, request: Any, read: ReadInProgress) -> None:
        """Note that a read was sent; a retry replaces the failed attempt.

        request: identifies its reply.
        """
        with self._lock:
            if self._closed:
                return
            failed = self._failed.pop(read.operation_id, None)
            if failed is not None:
                self._reads.remove(failed)
            read.follows = self._answered
            self._reads.append(read)
            self._by_request[request] = read

    def get_more(self, request: Any, cursor: Any) -> bool:
        """Note that a getMore was sent. Returns False if its cursor was not opened within this recording."""
        with self._lock:
            read = self._by_cursor.get(cursor)
            if read is None:
                return False
            read.unanswered += 1
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
        """Note that a reply arrived.

        read_at: its operationTime; 0 if it has none.
        ids: of the records in this batch, never changed again; None if they are unknown.
        last: the last of them, if it matters, never changed again.
        cursor: the key for get_more().
        cursor_id: 0 if the result ends here.
        """
        with self._lock:
            read = self._by_request.pop(request, None)
            if read is None:
                return
            self._answered = True
            read.unanswered -= 1
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
        """Note that the command behind `request` failed."""
        with self._lock:
            read = self._by_request.pop(request, None)
            if read is not None:
                read.unanswered -= 1
                read.failed = True
                if read.operation_id is not None:
                    self._failed[read.operation_id] = read

    def read_of(self, request: Any) -> ReadInProgress | None:
        """Return the read that a reply to `request` belongs to."""
        return self._by_request.get(request)

    def close(self) -> None:
        """Stop recording: later reads do not matter, and an export may stream for hours."""
        with self._lock:
            self._closed = True
            self._reads, self._failed, self._by_request, self._by_cursor, self._unclaimed = [], {}, {}, {}, {}

    def outcome(
        self, now_ms: int, *, started_ms: int | None = None, asked: str = "", constants: ConstantsOfRun | None = None
    ) -> Outcome:
        """Return everything known at this moment (ms since the epoch). Reads still under way count as failed.

        started_ms: when the request began; None: now_ms.
        asked: path and query of the request, as far as they are keyed: times in them are the request's own.
        constants: memory of constants that may hold parts of the present time; None: they are not examined.
        """
        started_ms = now_ms if started_ms is None else started_ms
        with self._lock:
            reasons = dict(self._reasons)
            ends: list[int] = []
            for read in self._reads:
                name = read.understood.description
                if read.failed:
                    reasons[Reason(Uncacheable.READ_FAILED, f"{name} failed")] = None
                elif read.unanswered:
                    reasons[Reason(Uncacheable.READ_FAILED, f"{name} was not answered before the response")] = None
                for end_ms in self._ends_ms(read.understood, constants, started_ms, now_ms, asked):
                    ends.append(end_ms)
                    if end_ms <= now_ms:
                        reasons[Reason(Uncacheable.CLOCK, f"{name} names a time that follows the clock")] = None
            if self.writes.attempted and not any(reason.reason is Uncacheable.WROTE for reason in reasons):
                reasons[Reason(Uncacheable.WROTE, "a write by a client without capture")] = None
            if not self._reads and not reasons:
                reasons[Reason(Uncacheable.NO_READS, "no read on a captured client")] = None
            for event in list(self._unclaimed.values()):
                reasons[Reason(Uncacheable.UNCAPTURED, f"{_shown(event)} by a client without capture")] = None
            return Outcome(
                reads=tuple(read.captured(started_ms, now_ms) for read in self._reads),
                reasons=tuple(reasons),
                valid_until_ms=min(ends, default=None),
                run=tuple(
                    RunQuery(read.understood.in_run, read.follows, read.understood.description) for read in self._reads
                ),
            )

    def _ends_ms(
        self, understood: Understood, constants: ConstantsOfRun | None, started_ms: int, now_ms: int, asked: str
    ) -> Iterator[int]:
        """Iterate over the moments at which a read is over without any write."""
        yield from ends_ms(
            understood.clock_values, started_ms=started_ms, now_ms=now_ms, window_ms=self.clock_window_ms, asked=asked
        )
        if constants is not None and understood.constants:
            yield from constants.seen.ends_ms(
                constants.route, understood.constants, started_ms=started_ms, now_ms=now_ms, asked=constants.asked
            )


def ends_ms(
    values: Iterable[ClockValue], *, started_ms: int, now_ms: int, window_ms: int, asked: str = ""
) -> Iterator[int]:
    """Iterate over the moments at which values that may follow the clock are over. Up to now_ms: at once.

    started_ms, now_ms: the request's.
    window_ms: see Recorder.clock_window_ms.
    asked: path and query of the request.
    """
    known: frozenset[int] | None = None
    zones = (-time.timezone * 1000, -time.altzone * 1000)
    for value in values:
        known = clock_values.named(asked) if known is None else known
        end_ms = clock_values.valid_until_ms(
            value, started_ms=started_ms, now_ms=now_ms, window_ms=window_ms, local_ms=zones, asked=known
        )
        if end_ms is not None:
            yield end_ms


def _shown(event: CommandStartedEvent) -> str:
    name, target = event.command_name, event.command.get(event.command_name)
    if name == "getMore":
        target = event.command.get("collection")
    return (
        f"{name} on {event.database_name}.{target}" if isinstance(target, str) else f"{name} on {event.database_name}"
    )
