"""Sender of the purges that wait in the outbox for one place, at the pace that the place allows.

A place with rates has one sender at a time among all processes, by lease. This sender sends one request after the other. Buckets
beside the outbox pay for each request, so that senders of several deployments stay within an account's limits together.
Purges that arrive while the sender waits for its turn join the waiting ones. The requesting process itself purges a place without
rates, at once, by several requests side by side. The outbox then only remembers.

Failed purges are put back, with growing pauses. Purges of a process that died come back by themselves. Only a purge that the
place refuses for good, alone, becomes a dead letter.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from quaestor.cdn_adapters.answer_handling import AnswerHandling
from quaestor.cdn_adapters.batching import PurgeEvent
from quaestor.cdn_adapters.budget import MonthlyBudget
from quaestor.cdn_adapters.capabilities import UNBOUNDED
from quaestor.cdn_adapters.pacing import Pacing
from quaestor.cdn_adapters.place import Connection, Place, Target
from quaestor.cdn_adapters.place_queue import PlaceQueue
from quaestor.cdn_adapters.purge_members import member
from quaestor.cdn_adapters.purge_request import purge_requests
from quaestor.cdn_adapters.queue_watch import QueueWatch
from quaestor.cdn_adapters.sender_options import (
    LEAD_MS,
    LONGEST_HOLD_S,
    MOST_AT_ONCE,
    POLL_S,
    SenderContext,
    SenderOptions,
)
from quaestor.cdn_adapters.side_by_side import SideBySide
from quaestor.errors import StoreError
from quaestor.purge_ports import PurgeOutbox, QueuedPurge
from quaestor.runtime.supervision.supervisor import KeptTask


class Sender:
    """The sender of one place in one process. Use from one event loop.

    below: senders of the places that this place fills, which are purged after it.
    queue: name of the queue in the outbox.
    watched: watch of the queue.
    """

    def __init__(
        self,
        place: Place,
        outbox: PurgeOutbox,
        *,
        options: SenderOptions | None = None,
        context: SenderContext | None = None,
        observe: Callable[[PurgeEvent], None] = lambda event: None,
        below: Sequence[Sender] = (),
    ) -> None:
        self.place = place
        self._context = context or SenderContext.of()
        clock, telemetry = self._context.clock, self._context.telemetry
        self._queue = PlaceQueue(place, outbox, options or SenderOptions(), clock)
        self.queue = self._queue.name
        errands = self._context.supervisor.errands(f"purges-{place.name}")
        self._taken: list[QueuedPurge] = []
        self._wake = asyncio.Event()
        usd = self._queue.options.budget_usd
        budget = None if usd is None else MonthlyBudget(place, usd=usd, accounts=outbox.accounts, clock=clock)
        self._pace = Pacing(
            place.capabilities, outbox.accounts, payer=self._queue.process, lease_ms=self._queue.options.lease_ms,
            limits=self._queue.options.limits, budget=budget, largest=MOST_AT_ONCE, clock=clock,
        )  # fmt: skip
        self.watched = QueueWatch(
            place, outbox, self.queue, waits=self._queue.waits, budget=budget, telemetry=telemetry, clock=clock
        )
        self._handling = AnswerHandling(
            self._queue, self._pace, self._context, errands, observe=observe, below=below, wake=self._wake.set
        )
        self._side_by_side = SideBySide(self._queue, self._pace, self._handling, self._context, errands, self._wake)
        self._tasks: tuple[KeptTask, ...] = ()

    @property
    def state(self) -> str:
        """State of the place.

        "ok".
        "throttled": the place takes fewer purges than there are.
        "dark": the place does not answer, or refuses all purges.
        "over-budget": no purge may be sent any more this month.
        """
        return self._handling.state

    def start(self) -> None:
        """Begin to send, in the running event loop."""
        self._tasks = (
            self._context.supervisor.keep(f"purges-{self.place.name}", self._run),
            self._context.supervisor.keep(f"purge-watch-{self.place.name}", self._watch),
        )

    async def aclose(self) -> None:
        """End. Open purges stay in the outbox."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            await task.aclose()
        await self._handling.aclose()
        self._queue.waits.end()
        with suppress(StoreError):
            await self._queue.resign()
        with suppress(StoreError):  # so that no process has to wait for the lease
            await self._queue.release([*self._queue.own.take(UNBOUNDED), *self._taken, *self._side_by_side.left()])

    async def put(self, targets: Sequence[Target], *, until_ms: int) -> Callable[[], Awaitable[None]]:
        """Put purges into the outbox; return a function that waits until they are acknowledged. Raises StoreError."""
        members = [member(target) for target in dict.fromkeys(targets)]
        wait = self._queue.waits.expect(members)  # before the purges can be taken
        now_ms = self._queue.clock()
        try:
            if self._queue.limited:
                await self._queue.outbox.put(self.queue, members, until_ms=until_ms, now_ms=now_ms)
                self._wake.set()
            else:
                await self._queue.own.put(members, until_ms=until_ms, now_ms=now_ms, wake=self._wake.set)
        finally:
            wait.put = True
        return wait.acknowledged

    async def _run(self) -> None:
        while True:
            try:
                async with self.place.connect() as connection:
                    if not self._queue.limited:
                        await self._side_by_side.run(connection)
                    while self._queue.limited:
                        await self._deliver(connection)
            except StoreError as error:
                self._context.telemetry.failure("store", "cdn.outbox_away", error)
            except Exception:  # a bug here or in a provider's module: taken purges come back
                await self._put_back()
                raise
            await self._put_back()
            await self._context.sleep(self._handling.paused_s())

    async def _put_back(self) -> None:
        with suppress(StoreError):
            await self._queue.release(self._side_by_side.left())

    async def _deliver(self, connection: Connection) -> None:
        """Send the due purges to a place with rates, one request after the other, or wait for due purges."""
        self._wake.clear()
        if not await self._queue.lead():
            await self._idle(LEAD_MS / 3_000)
            return
        self._taken = await self._next()
        requests = deque(purge_requests(self._pace.requests(), self._taken))
        if not requests:
            await self._idle(POLL_S)
            return
        pause_s = 0.0
        while requests and not pause_s:
            pause_s = await self._pace.spend(requests[0].targets) / 1_000
            if pause_s:
                self._handling.state = "throttled"
                pause_s = min(pause_s, LONGEST_HOLD_S)  # and lead on meanwhile
            else:
                pause_s, _ = await self._handling.send(connection, requests.popleft())
        if pause_s:
            await self._queue.release([purge for request in requests for purge in request.held])
        self._taken = []
        if pause_s:
            await self._context.sleep(pause_s)

    async def _next(self) -> list[QueuedPurge]:
        """Take the due purges: at most the size of one full request, so that later purges can join the waiting ones."""
        capabilities = self.place.capabilities
        most = min(MOST_AT_ONCE, max(capabilities.batch_of(kind) for kind in capabilities.kinds))
        if capabilities.asynchronous:
            most = min(most, capabilities.open_targets - self._handling.open_targets)
        if most < 1:
            return []
        return await self._queue.take(most)

    async def _idle(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _watch(self) -> None:
        """Watch the queue once a second: the purges that other processes have sent, and the state of the place."""
        while True:
            await asyncio.sleep(1.0)
            with suppress(StoreError):  # sending reports the same error
                self._handling.state = await self.watched.look(self.state)
