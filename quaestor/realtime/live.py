"""Live results: what a subscriber holds of a query, its result and the events by which it changes, one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

from quaestor.errors import SubscriptionError
from quaestor.incremental import ResultEvent
from quaestor.model import Query, Version
from quaestor.realtime.messages import FullResult, ResultChange, StageProgress
from quaestor.realtime.notices import DeliveryMode, Notice, Resumed, Stalled, Step, delivery_of
from quaestor.realtime.replica import Replica

_LOOK_AGAIN_S: Final = 0.01
_CATCH_UP_MS: Final = 30_000
"""Time that a stage has to catch up with the result that a moved subscription holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The full result, to begin with, or because events had to be dropped (`overflow`).

    rows: (key, document) of each, in order if the query has one. For what a key is, see ResultEvent.
    delivery: of the changes that follow.
    """

    rows: tuple[tuple[Any, Any], ...]
    overflow: bool
    delivery: DeliveryMode

    @property
    def documents(self) -> tuple[Any, ...]:
        """The documents alone, in the same order."""
        return tuple(document for _, document in self.rows)


class Contents(NamedTuple):
    """Contents of a result at a moment.

    version: every write up to it is contained; 0: the result is not here yet, is being read again, or is followed no longer.
    sequence: of the newest change that is contained; grows while the stage stays the same.
    rows: as in Whole.
    """

    version: Version
    sequence: int
    rows: tuple[tuple[Any, Any], ...]


@dataclass(slots=True, kw_only=True, eq=False)
class ReportedProgress:
    """Progress of the stage of one query partition, as it reported last. See StageProgress."""

    stage: str = " "
    version: Version = 0
    fresh_as_of_ms: int = 0
    behind: frozenset[str] = frozenset()

    def update(self, progress: StageProgress) -> None:
        """Take over a newer report."""
        self.stage, self.behind = progress.stage, frozenset(progress.behind)
        self.version, self.fresh_as_of_ms = progress.version, progress.fresh_as_of_ms


@dataclass(slots=True, kw_only=True, eq=False)
class SharedResult:
    """Result of one query in this process, shared by all its subscribers here.

    lock: of the reading thread and the event loops.
    reported: by the stage of the query.
    needs_full_result: its stage has to send the full result, whatever is known of it here.
    lacking: collections of the query without post-images, as far as its stage has said.
    stalled: the notice that the result stands still; None while it does not.
    recomputation: why the result is read again after writes; None: it is maintained.
    """

    lock: threading.RLock
    query_id: str
    query: Query
    replica: Replica
    reported: ReportedProgress
    recomputation: str | None = None
    needs_full_result: bool = True
    lacking: tuple[str, ...] | None = None
    stalled: Stalled | None = None
    _floor: Version = 0
    _floor_until_ms: int = 0
    _version: Version = 0
    _fresh_as_of_ms: int = 0
    _watched_ms: int = -1
    _advanced_at_ms: int = 0

    @property
    def delivery(self) -> DeliveryMode:
        """Delivery mode of the result's changes."""
        return delivery_of(self.lacking) if self.recomputation is None else DeliveryMode.RECOMPUTED

    def take_full(self, full: FullResult) -> None:
        """Take in that the rows were replaced by a full result."""
        self.needs_full_result = False
        self._version = max(self._version, full.read_version)

    def take_reread(self, change: ResultChange) -> None:
        """Take in that the result was read anew. A recomputed result then contains exactly the writes up to a version."""
        if self.recomputation is not None:
            self._version = max(self._version, change.version)
            self._fresh_as_of_ms = max(self._fresh_as_of_ms, change.fresh_as_of_ms)

    def contained(self) -> tuple[Version, int]:
        """Version and moment up to which the result contains every write. O(1): computed on request, not sent to each query."""
        reported = self.reported
        with self.lock:
            if self._is_current(reported):
                self._version = max(self._version, reported.version)
                self._fresh_as_of_ms = max(self._fresh_as_of_ms, reported.fresh_as_of_ms)
            return self._version, self._fresh_as_of_ms

    def proven(self) -> Version:
        """Version up to which the rows that are here now contain every write, whatever they contained before; 0: not known."""
        reported = self.reported
        with self.lock:
            return reported.version if self.replica.known and self._is_current(reported) else 0

    def _is_current(self, reported: ReportedProgress) -> bool:
        """Whether the result contains every write up to the version that its stage has reported."""
        return (
            not self.needs_full_result
            and self.query_id not in reported.behind
            and self.replica.epoch.startswith(reported.stage)
        )

    def move(self, reported: ReportedProgress, *, now_ms: int) -> None:
        """Follow another stage. Its result is taken over once it contains every write that the result here contains.

        reported: by the other stage.
        """
        self._floor, self._floor_until_ms = self.contained()[0], now_ms + _CATCH_UP_MS
        self.reported = reported

    def admits(self, full: FullResult, *, now_ms: int) -> bool:
        """Whether to take over a full result of the stage.

        After a move an older result is refused, so nothing goes backwards. A stage that does not catch up within 30 s has lost
        the writes, for example because the database's time went back. Then its version counts.
        """
        reported = self.reported
        proven = full.version
        if full.epoch.startswith(reported.stage) and self.query_id not in reported.behind:
            proven = max(proven, reported.version)
        if proven < self._floor:
            if now_ms < self._floor_until_ms:
                return False
            self._version = proven
        self._floor = 0
        return True

    @property
    def begun(self) -> bool:
        """Whether there has been a result, though it may be distrusted now."""
        return self.replica.known or self._advanced_at_ms > 0

    def advances(self, now_ms: int) -> bool:
        """Note that the result has got further with its stage, as nearly all do at each look. False: `watch` has to find out."""
        reported = self.reported
        fresh_as_of_ms = reported.fresh_as_of_ms
        if fresh_as_of_ms <= self._watched_ms or self.stalled is not None or not self._is_current(reported):
            return False
        self._watched_ms, self._advanced_at_ms = fresh_as_of_ms, now_ms
        return True

    def watch(self, now_ms: int, *, bound_ms: int) -> Stalled | Resumed | None:
        """Compare the result's progress with the last look; return the notice for subscribers, if there is one.

        A stall is measured by this process's clock, not by the time that the result has reached: clocks may be apart.
        """
        _, fresh_as_of_ms = self.contained()
        if fresh_as_of_ms > self._watched_ms:
            self._watched_ms, self._advanced_at_ms = fresh_as_of_ms, now_ms
            before, self.stalled = self.stalled, None
            return None if before is None else Resumed(since_ms=before.since_ms, fresh_as_of_ms=fresh_as_of_ms)
        if self.stalled is None and now_ms - self._advanced_at_ms > bound_ms:
            self.stalled = Stalled(since_ms=fresh_as_of_ms or self._advanced_at_ms)
            return self.stalled
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberOptions:
    """Options of one subscriber.

    exact: the subscription ends when some changes can no longer be reported.
    steps: a `Step` follows the events of each change, and each `Whole`.
    poll_interval_ms: the result is read again at most once in this time, unless another wants it more often; 0: stage's rule.
    """

    exact: bool = False
    steps: bool = False
    poll_interval_ms: int = 0


DEFAULT_OPTIONS: Final = SubscriberOptions()


class EarlierChanges(Protocol):
    """Reader of changes that this process has not received. Blocks; raises no error."""

    def __call__(self, position: Step, *, wanted: int) -> list[ResultChange]:
        """See LiveResult.earlier."""


class LiveResult:
    """Live result of a query: an asynchronous iterator over a `Whole` and the `ResultEvent`s after it, in order, each once.

    The events lead from the `Whole` to the present result. `Stalled`, `Resumed` and `DeliveryChanged` may come between them.
    `delivery` shows whether every write that changes the result has an event. At most `queue` events wait for a slow
    subscriber; then a `Whole` replaces them. After a `Whole` the result does not stand still, unless a `Stalled` follows.
    Iteration raises SubscriptionError when the query cannot be followed any more, and stops after `cancel`. For one task.
    """

    def __init__(
        self,
        shared: SharedResult,
        *,
        queue: int,
        cancel: Callable[[LiveResult, SharedResult], Awaitable[None]],
        options: SubscriberOptions,
        earlier: EarlierChanges,
    ) -> None:
        self.options = options
        self._earlier = earlier
        self._shared = shared
        self._most = queue
        self._cancel = cancel
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._events: deque[ResultEvent | Notice] = deque()
        self._whole, self._overflow = True, False
        self._error: SubscriptionError | None = None
        self._cancelled = False

    @property
    def query(self) -> Query:
        """The query, with what its collection adds to it."""
        return self._shared.query

    @property
    def delivery(self) -> DeliveryMode:
        """Delivery mode of new changes; waiting changes may have had another mode."""
        return self._shared.delivery

    @property
    def recomputation(self) -> str | None:
        """Reason why the result is read again after writes; None: it is maintained."""
        return self._shared.recomputation

    @property
    def lacking(self) -> tuple[str, ...]:
        """Collections of the query without post-images, as far as that is known."""
        return self._shared.lacking or ()

    @property
    def known(self) -> bool:
        """Whether the result has arrived."""
        return self._shared.replica.known

    @property
    def ordered(self) -> bool:
        """Whether the rows have an order, so that events carry places."""
        return self._shared.replica.ordered

    @property
    def waiting(self) -> int:
        """Number of events, notices and full results that could be taken without waiting."""
        with self._shared.lock:
            return int(self._whole and self._shared.replica.known) + len(self._events)

    @property
    def version(self) -> Version:
        """Version of the result: every write up to it is contained in `rows`, and in the events so far once they are taken."""
        return self._shared.contained()[0]

    @property
    def fresh_as_of_ms(self) -> int:
        """The same as a time: every write that the database performed before then. The time stands still if the grid does."""
        return self._shared.contained()[1]

    @property
    def failed(self) -> bool:
        """Whether the subscription has ended without `cancel`."""
        return self._error is not None

    @property
    def ended(self) -> bool:
        """Whether the subscription has ended, in whatever way."""
        return self._cancelled or self.failed

    async def ready(self) -> None:
        """Wait until the result is known. Raises SubscriptionError if it will not be."""
        while not self.known:
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            if not self.known and self._error is None:
                await self._arrived.wait()

    async def matched(self) -> None:
        """Wait until every cell matches the query: before that it may have to be read again."""
        while not self.fresh_as_of_ms:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def earlier(self, position: Step, *, wanted: int) -> list[ResultChange]:
        """Return the changes that lead to a position, read back from the results pipeline, the oldest first.

        wanted: number of the oldest change that is needed. More may come, or fewer if they are not retained.
        """
        return await asyncio.to_thread(self._earlier, position, wanted=wanted)

    def rows(self) -> tuple[tuple[Any, Any], ...]:
        """The result as it is now, whatever events have been taken. O(its length)."""
        with self._shared.lock:
            return self._shared.replica.rows()

    @property
    def proven(self) -> Version:
        """The version of contents(). O(1)."""
        return 0 if self._error is not None or self._cancelled else self._shared.proven()

    def contents(self) -> Contents:
        """The result as it is now. O(its length)."""
        with self._shared.lock:
            version, replica = self.proven, self._shared.replica
            return Contents(version, replica.sequence, replica.rows() if version else ())

    async def cancel(self) -> None:
        """End the subscription, and drop waiting events. A second call does nothing."""
        if not self._cancelled:
            self._cancelled = True
            self._arrived.set()
            await self._cancel(self, self._shared)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Whole | ResultEvent | Notice:
        while True:
            if self._cancelled:
                raise StopAsyncIteration
            self._arrived.clear()
            with self._shared.lock:
                if self._whole and self._shared.replica.known:
                    self._whole = False
                    if self._shared.stalled is not None:
                        self._events.append(self._shared.stalled)
                    if self.options.steps:
                        self._events.appendleft(self._shared.replica.step)
                    rows, delivery = self._shared.replica.rows(), self._shared.delivery
                    return Whole(rows=rows, overflow=self._overflow, delivery=delivery)
                if self._events:
                    return self._events.popleft()
            if self._error is not None:
                raise self._error
            await self._arrived.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    def push(self, events: Sequence[ResultEvent | Notice], *, step: Step | None = None) -> None:
        """Add the events of one change, or notices. Called by the reading thread, which holds the lock.

        step: the position behind them.
        """
        if not self._whole:
            self._events.extend(events)
            if step is not None and self.options.steps:
                self._events.append(step)
            if len(self._events) > self._most:
                self._events.clear()
                self._whole = self._overflow = True
        self._wake()

    def fail(self, error: SubscriptionError) -> None:
        """End the subscription: there will be no more events. Called by the reading thread."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: no task waits any more
            self._loop.call_soon_threadsafe(self._arrived.set)
