"""Purges on their way to one place: gathered into batches, sent one batch at a time, and kept until acknowledged.

Targets that arrive while a batch is under way wait for the next batch, each target once. A quiet system therefore purges without
delay, and a busy one in full batches. A target that arrives while it is under way is sent again: the purge under way may have
happened before the write.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from quaestor.cdn_adapters.place import Connect, Target
from quaestor.errors import CdnError
from quaestor.tasks import ended


class Outcome(StrEnum):
    """Results of sending a batch."""

    PURGED = "purged"
    FAILED = "failed"
    """Not acknowledged; the targets are kept and tried again."""
    ABANDONED = "abandoned"
    """Kept until every copy has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeEvent:
    """One attempt to deliver purges, for metrics and logs.

    place: address of the purged place.
    targets: number of targets that were purged, are kept, or were given up.
    error: of FAILED.
    """

    place: str
    outcome: Outcome
    targets: int
    error: CdnError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of one place's batches: size, pace, and the retries of unacknowledged targets.

    linger_ms: how long the first target of an idle place waits for others; 0 still gathers targets of the same moment.
    pause_ms: pause after each acknowledged batch, for a provider that limits the rate of purges; 0: none.
    max_targets: of one batch.
    max_bytes: of one batch.
    max_pending: targets kept for a place; more are refused.
    first_retry_ms, last_retry_ms: pause after the first failure, doubled after each further failure up to the last.
    copies_live_ms: age at which a target is dropped, because every copy of it has expired.
    """

    linger_ms: int = 0
    pause_ms: int = 0
    max_targets: int = 100
    max_bytes: int = 4_000
    max_pending: int = 100_000
    first_retry_ms: int = 50
    last_retry_ms: int = 2_000
    copies_live_ms: int = 3_610_000


@dataclass(slots=True)
class _Call:
    """One caller of purge().

    left: targets that the caller still waits for.
    """

    left: int
    done: asyncio.Future[None]


@dataclass(slots=True)
class _Pending:
    """A target that is not acknowledged yet, with the calls that wait for it."""

    since_ms: float
    calls: list[_Call] = field(default_factory=list)


def _monotonic_ms() -> float:
    return time.monotonic() * 1_000


class PurgeBatches:
    """Queue of one place, and the task that empties it. Use it from one event loop at a time.

    place: address in errors and events.
    observe: called after every attempt; must not raise.
    sleep, clock: replaced in tests.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        place: str,
        limits: BatchLimits | None = None,
        observe: Callable[[PurgeEvent], None] = lambda event: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = _monotonic_ms,
    ) -> None:
        self.place = place
        self._connect = connect
        self._limits = limits or BatchLimits()
        self._observe = observe
        self._sleep = sleep
        self._clock = clock
        self._waiting: OrderedDict[Target, _Pending] = OrderedDict()
        self._under_way: dict[Target, _Pending] = {}
        self._arrived = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._batch_size = self._limits.max_targets

    @property
    def pending(self) -> int:
        """Targets that are not acknowledged yet."""
        return len(self._waiting) + len(self._under_way)

    async def purge(self, targets: Iterable[Target]) -> None:
        """Purge these targets; return when all were acknowledged after this call began.

        Raises CdnError when an attempt failed meanwhile, or when too many targets are pending. After a failed attempt the
        targets are kept, and tried again without another call. Another call is harmless and waits for the next attempt.
        Cancelling is harmless too: accepted targets are purged.
        """
        wanted = tuple(dict.fromkeys(targets))
        if not wanted:
            return
        new = sum(target not in self._waiting for target in wanted)
        if self.pending + new > self._limits.max_pending:
            raise CdnError(
                f"{self.pending} purges are waiting for {self.place}: no room for {new} more",
                retry_after_s=self._limits.last_retry_ms / 1_000,
            )
        self._start()
        call = _Call(left=len(wanted), done=asyncio.get_running_loop().create_future())
        for target in wanted:
            pending = self._waiting.get(target)
            if pending is None:
                pending = self._waiting[target] = _Pending(since_ms=self._clock())
            pending.since_ms = self._clock()
            pending.calls.append(call)
        self._arrived.set()
        await call.done

    async def aclose(self) -> None:
        """Stop. Waiting callers get a CdnError; pending targets are given up."""
        worker, self._worker = self._worker, None
        await ended((worker,))
        self._put_back()
        if self._waiting:
            left = len(self._waiting)
            self._fail_callers(CdnError(f"closed with {left} purges waiting for {self.place}"))
            self._waiting.clear()
            self._observe(PurgeEvent(place=self.place, outcome=Outcome.ABANDONED, targets=left))

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._worker is None or self._worker.done() or self._worker.get_loop() is not loop:
            self._put_back()  # targets of a loop that has ended
            self._arrived = asyncio.Event()
            self._worker = loop.create_task(self._work(), name=f"quaestor-purges-{self.place}")

    async def _work(self) -> None:
        try:
            await self._send_batches()
        except Exception as error:  # connecting failed: the next purge tries again
            self._failed(CdnError(f"{self.place}: {error!r}"))

    async def _send_batches(self) -> None:
        async with self._connect() as send:
            retry_ms = self._limits.first_retry_ms
            idle = True
            while True:
                if not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                    idle = True
                if idle:
                    await self._sleep(self._limits.linger_ms / 1_000)
                    idle = False
                batch = self._take()
                try:
                    await send(batch)
                except Exception as error:
                    failure = error if isinstance(error, CdnError) else CdnError(f"{self.place}: {error!r}")
                    failure.retry_after_s = failure.retry_after_s or retry_ms / 1_000
                    self._failed(failure)
                    await self._sleep(failure.retry_after_s)
                    retry_ms = min(2 * retry_ms, self._limits.last_retry_ms)
                else:
                    self._acknowledged(len(batch))
                    retry_ms = self._limits.first_retry_ms
                    if self._limits.pause_ms:
                        await self._sleep(self._limits.pause_ms / 1_000)

    def _take(self) -> tuple[Target, ...]:
        size = 0
        while self._waiting and len(self._under_way) < self._batch_size:
            target = next(iter(self._waiting))
            size += len(target.value) + 1
            if self._under_way and size > self._limits.max_bytes:
                break
            self._under_way[target] = self._waiting.pop(target)
        return tuple(self._under_way)

    def _acknowledged(self, targets: int) -> None:
        for pending in self._under_way.values():
            for call in pending.calls:
                call.left -= 1
                if not call.left and not call.done.done():
                    call.done.set_result(None)
        self._under_way.clear()
        self._batch_size = min(2 * self._batch_size, self._limits.max_targets)
        self._observe(PurgeEvent(place=self.place, outcome=Outcome.PURGED, targets=targets))

    def _failed(self, error: CdnError) -> None:
        """Keep the targets that are not too old. The next batch is half as large, so a target that is always refused ends up
        alone.
        """
        self._put_back()
        self._batch_size = max(1, self._batch_size // 2)
        self._fail_callers(error)
        oldest_ms = self._clock() - self._limits.copies_live_ms
        dead = [target for target, pending in self._waiting.items() if pending.since_ms <= oldest_ms]
        for target in dead:
            del self._waiting[target]
        self._observe(PurgeEvent(place=self.place, outcome=Outcome.FAILED, targets=len(self._waiting), error=error))
        if dead:
            self._observe(PurgeEvent(place=self.place, outcome=Outcome.ABANDONED, targets=len(dead)))

    def _put_back(self) -> None:
        for target, pending in self._under_way.items():
            newer = self._waiting.get(target)
            if newer is None:
                self._waiting[target] = pending
            else:
                newer.calls += pending.calls
        self._under_way.clear()

    def _fail_callers(self, error: CdnError) -> None:
        for pending in self._waiting.values():
            for call in pending.calls:
                if not call.done.done() and not call.done.get_loop().is_closed():
                    call.done.set_exception(_again(error))
            pending.calls.clear()


def _again(error: CdnError) -> CdnError:
    """Copy the error for one more caller: raising one object in several tasks would mix their tracebacks."""
    copy = CdnError(str(error), retryable=error.retryable, retry_after_s=error.retry_after_s)
    copy.__cause__ = error.__cause__
    return copy
