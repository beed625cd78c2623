"""Sender of the purges that wait in the outbox for one place, at the pace that the place allows.

A place with rates has one sender at a time among all processes, by lease; it pays each request out of buckets that lie beside the
outbox, so senders of several deployments together stay within what an account may, too. While it waits for its turn, what comes
in joins what waits. A place without rates is purged by the process that asks, at once; the outbox then only remembers.

What was taken is put back when it failed, with growing pauses, and comes back by itself when its taker died. Only what the place
refuses for good, alone, becomes a dead letter.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cdn_adapters.answers import Accepted, Answer, Delivered, Rejected, Throttled
from cdn_adapters.batching import BatchLimits, Outcome, PurgeEvent
from cdn_adapters.budget import MonthlyBudget
from cdn_adapters.capabilities import UNBOUNDED
from cdn_adapters.own_purges import OwnPurges
from cdn_adapters.pacing import Pacing
from cdn_adapters.place import Connection, Place, Target
from cdn_adapters.purge_members import ON_ITS_WAY, TIERS, member, target_of
from cdn_adapters.purge_waits import PurgeWaits, UnderWay
from cdn_adapters.queue_watch import QueueWatch
from cdn_adapters.requests import requests_of
from quaestor.clock import Clock, system_clock
from quaestor.errors import CdnError, StoreError
from quaestor.observability.telemetry import Telemetry
from quaestor.purge_ports import PurgeOutbox, QueuedPurge
from quaestor.tasks import Rests, ended

LEASE_MS: Final = 30_000
"""How long a purge may be taken and not acknowledged before it is anybody's again."""
LEAD_MS: Final = 5_000
"""How long a sender leads without saying so again."""
POLL_S: Final = 0.25
"""How often it looks for what other processes have put in, or have left behind, and for what is due again."""
LAST_PAUSE_S: Final = 30.0
"""Longest pause after failures, if the limits do not say a longer one."""
TIER_SLACK_MS: Final = 500
"""Added to a provider's bound before its tiers are purged again."""
_MOST_AT_ONCE: Final = 1_000
_LONGEST_REST_S: Final = 0.01
"""Between two batches of a place without rates that takes several purges in a request."""


UNLIMITED: Final = BatchLimits(max_targets=UNBOUNDED, max_bytes=UNBOUNDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderOptions:
    """Options of a sender.

    repurge_after_ms: what was on its way to the place when it was purged is purged again after this.
    lease_ms: see LEASE_MS.
    limits: narrower ones than the place's own.
    budget_usd: see MonthlyBudget; None: there is none.
    """

    repurge_after_ms: int = 1_000
    lease_ms: int = LEASE_MS
    limits: BatchLimits = UNLIMITED
    budget_usd: float | None = None


class Sender:
    """The sender of one place in one process. Use from one event loop.

    below: senders of what is filled by this place, and purged after it.
    queue: its name in the outbox.
    watched: how the place takes what is in it.
    state: "ok"; "throttled": the place takes fewer purges than there are; "dark": it does not answer, or refuses all;
        "over-budget": nothing may be sent any more this month.
    """

    def __init__(
        self,
        place: Place,
        outbox: PurgeOutbox,
        *,
        options: SenderOptions | None = None,
        telemetry: Telemetry | None = None,
        observe: Callable[[PurgeEvent], None] = lambda event: None,
        below: Sequence[Sender] = (),
        clock: Clock = system_clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.place = place
        self.queue = f"{place.name} {place.address}"
        self.state = "ok"
        self._outbox = outbox
        self._options = options or SenderOptions()
        self._telemetry = telemetry or Telemetry()
        self._observe = observe
        self._below = tuple(below)
        self._clock = clock
        self._sleep = sleep
        self._name = secrets.token_hex(6)
        self._count = 0
        self._own = OwnPurges(outbox, self.queue, token=self._token, lease_ms=self._options.lease_ms)
        self._taken: list[QueuedPurge] = []
        self._wake = asyncio.Event()
        self._rests, self._look_due_s = Rests(_LONGEST_REST_S), 0.0
        self._waits = PurgeWaits()
        self._led_until_ms = 0
        usd = self._options.budget_usd
        budget = None if usd is None else MonthlyBudget(place, usd=usd, accounts=outbox.accounts, clock=clock)
        self._pace = Pacing(
            place.capabilities, outbox.accounts, payer=self._name, lease_ms=self._options.lease_ms,
            limits=self._options.limits, budget=budget, largest=_MOST_AT_ONCE, clock=clock,
        )  # fmt: skip
        self.watched = QueueWatch(
            place, outbox, self.queue, waits=self._waits, budget=budget, telemetry=self._telemetry, clock=clock
        )
        self._pause_s = self._options.limits.first_retry_ms / 1_000
        self._open = 0
        self._accepted: set[asyncio.Task[None]] = set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def start(self) -> None:
        """Begin to send, in the running event loop."""
        self._tasks = (
            asyncio.create_task(self._run(), name=f"quaestor-purges-{self.queue}"),
            asyncio.create_task(self._watch(), name=f"quaestor-purges-watch-{self.queue}"),
        )

    async def aclose(self) -> None:
        """End. What is open stays in the outbox."""
        tasks, self._tasks = self._tasks, ()
        await ended(tasks)
        await ended(self._accepted)
        self._waits.end()
        if self._clock() < self._led_until_ms:
            with suppress(StoreError):
                await self._outbox.resign(self.queue, token=self._name)
        with suppress(StoreError):  # so that nobody has to wait for the lease
            await self._release([*self._own.take(UNBOUNDED), *self._taken])

    async def put(self, targets: Sequence[Target], *, until_ms: int) -> Callable[[], Awaitable[None]]:
        """Put purges into the outbox; what waits until they were acknowledged. Raises StoreError."""
        members = [member(target) for target in dict.fromkeys(targets)]
        wait = self._waits.expect(members)  # before they can be taken
        now_ms = self._clock()
        if self._limited:
            await self._outbox.put(self.queue, members, until_ms=until_ms, now_ms=now_ms)
            self._wake.set()
        else:
            await self._own.put(members, until_ms=until_ms, now_ms=now_ms, wake=self._wake.set)
        return wait

    @property
    def _limited(self) -> bool:
        return bool(self.place.capabilities.rates)

    def _token(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"

    async def _run(self) -> None:
        while True:
            try:
                async with self.place.connect() as connection:
                    while True:
                        await self._deliver(connection)
            except StoreError as error:
                self._telemetry.failure("store", "cdn.outbox_away", error)
            except Exception as error:  # a mistake of ours, or of a provider's module: what was taken comes back
                self._telemetry.failure("cdn", "cdn.sender_failed", repr(error))
            await self._sleep(self._paused())

    async def _deliver(self, connection: Connection) -> None:
        """Send what is due, or wait for it."""
        self._wake.clear()
        if self._limited and not await self._lead():
            await self._idle(LEAD_MS / 3_000)
            return
        begun_s = await self._rests.over()
        self._taken = purges = await self._next()
        if not purges:
            left_s = self._look_due_s - asyncio.get_running_loop().time()
            await self._idle(left_s if 0 < left_s < POLL_S else POLL_S)
            return
        by_target: dict[Target, list[QueuedPurge]] = {}
        for purge in purges:
            by_target.setdefault(target_of(purge.member), []).append(purge)
        requests = deque(requests_of(self._pace.requests(), list(by_target)))
        pause_s = 0.0
        while requests and not pause_s:
            held = [purge for target in requests[0] for purge in by_target[target]]
            pause_s = await self._pace.spend(requests[0]) / 1_000
            if pause_s:
                self.state = "throttled"
                pause_s = min(pause_s, LEAD_MS / 2_000)  # and lead on meanwhile
            else:
                pause_s = await self._send(connection, requests.popleft(), held)
        if pause_s:
            await self._release([purge for request in requests for target in request for purge in by_target[target]])
        self._taken = []
        if pause_s:
            self._look_due_s = 0.0  # for what was put back
            await self._sleep(pause_s)
        elif not self._limited and self.place.capabilities.gathers:
            self._rests.worked(begun_s)

    async def _next(self) -> list[QueuedPurge]:
        """What this process has put in, if it sends that itself, and what is due: of a place without rates that is looked for now
        and then, because nobody's purges wait for it."""
        most = self._most()
        own = self._own.take(most)
        now_s = asyncio.get_running_loop().time()
        if len(own) >= most or (not self._limited and now_s < self._look_due_s):
            return own
        self._taken, self._look_due_s = own, now_s + POLL_S
        try:
            due = await self._outbox.take(
                self.queue, token=self._token(), count=most - len(own), lease_ms=self._options.lease_ms,
                now_ms=self._clock(),
            )  # fmt: skip
        except StoreError as error:
            if not own:
                raise
            self._telemetry.failure("store", "cdn.outbox_away", error)
            return own
        if len(own) + len(due) >= most:  # there may be more
            self._look_due_s = now_s
        return own + due

    async def _lead(self) -> bool:
        now_ms = self._clock()
        if now_ms < self._led_until_ms - LEAD_MS // 2:
            return True
        if not await self._outbox.lead(self.queue, token=self._name, lease_ms=LEAD_MS, now_ms=now_ms):
            self._led_until_ms = 0
            return False
        self._led_until_ms = now_ms + LEAD_MS
        return True

    async def _idle(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def _most(self) -> int:
        """How many to take: one full request at least, so that what comes later can join what waits."""
        capabilities = self.place.capabilities
        most = max(capabilities.batch_of(kind) for kind in capabilities.kinds) if self._limited else _MOST_AT_ONCE
        if capabilities.asynchronous:
            most = min(most, capabilities.open_targets - self._open)
        return min(_MOST_AT_ONCE, most)

    async def _send(self, connection: Connection, batch: Sequence[Target], held: Sequence[QueuedPurge]) -> float:
        """Send one request and act on the answer; the pause before the next, in seconds."""
        waits = self._waits.under_way([purge.member for purge in held])
        try:
            return await self._answered(connection, batch, held, waits)
        except BaseException:  # it is sent again: who waits for it waits for that
            waits.missed()
            raise

    async def _answered(
        self, connection: Connection, batch: Sequence[Target], held: Sequence[QueuedPurge], waits: UnderWay
    ) -> float:
        try:
            answer = await connection.send(batch)
        except CdnError as error:
            waits.missed()
            await self._pace.refused(batch)
            return await self._failed(held, "cdn.away" if error.retryable else "cdn.refused", error)
        finally:
            await self._pace.answered()
            await self._own.told(held)
        if answer.pace is not None and answer.pace.remaining < 1:
            await self._pace.hold(batch[0].by, answer.pace.reset_s)
        if isinstance(answer, Accepted):
            self._count_answer("accepted")
            self._healthy()
            self._open += len(batch)
            task = asyncio.create_task(self._complete(connection, answer, len(batch), held, waits))
            self._accepted.add(task)
            task.add_done_callback(self._accepted.discard)
            return self._options.limits.pause_ms / 1_000
        if isinstance(answer, Delivered):
            await self._done(held)
            waits.done()
            self._healthy()
            self._observe(PurgeEvent(place=self.place.address, outcome=Outcome.PURGED, targets=len(batch)))
            return self._options.limits.pause_ms / 1_000
        waits.missed()
        await self._pace.refused(batch)
        return await self._not_taken(batch, held, answer)

    async def _done(self, held: Sequence[QueuedPurge]) -> None:
        now_ms = self._clock()
        capabilities = self.place.capabilities
        again = [(ON_ITS_WAY, now_ms + self._options.repurge_after_ms)]
        if capabilities.tiered:
            again.append((TIERS, now_ms + capabilities.effective_within_ms + TIER_SLACK_MS))
        for sender in self._below:  # before this is forgotten, so that it is not lost in between
            kinds = sender.place.capabilities.kinds
            targets = [one for one in dict.fromkeys(target_of(purge.member) for purge in held) if one.by in kinds]
            if targets:
                await sender.put(targets, until_ms=max(purge.until_ms for purge in held))
        await self._outbox.done(self.queue, held, again=again, now_ms=now_ms)
        self._count_answer("delivered")
        self._telemetry.invalidations.purges.labels(self.place.name, "done").inc(len(held))

    async def _not_taken(
        self, batch: Sequence[Target], held: Sequence[QueuedPurge], answer: Rejected | Throttled
    ) -> float:
        """Act on a refusal; the pause before the next request, in seconds."""
        if isinstance(answer, Throttled):
            self.state = "throttled"
            self._count_answer("throttled")
            pause_s = answer.retry_after_s or self._paused()
            await self._pace.hold(batch[0].by, pause_s)
            self._telemetry.failure("cdn", "cdn.throttled", answer.reason, cdn=self.place.name)
            await self._release(held)
            return min(pause_s, LEAD_MS / 2_000) if self._limited else pause_s
        if answer.place_wide:
            return await self._failed(held, "cdn.refused", CdnError(answer.reason))
        self._count_answer("rejected")
        if len(batch) > 1:  # smaller and smaller, until the one that is refused is alone
            self._pace.largest = max(1, len(batch) // 2)
            await self._release(held)
        else:
            self._telemetry.failure("cdn", "cdn.dead_letter", answer.reason, cdn=self.place.name)
            await self._outbox.bury(self.queue, held, reason=answer.reason, now_ms=self._clock())
        return 0.0

    async def _failed(self, held: Sequence[QueuedPurge], event: str, error: CdnError) -> float:
        """Put these back; the pause before the next request, in seconds."""
        self.state = "dark"
        self._count_answer("failed")
        self._telemetry.invalidations.purges.labels(self.place.name, "failed").inc(len(held))
        self._telemetry.failure("cdn", event, error, cdn=self.place.name)
        self._observe(PurgeEvent(place=self.place.address, outcome=Outcome.FAILED, targets=len(held), error=error))
        pause_s = error.retry_after_s or self._paused()
        now_ms = self._clock()
        await self._outbox.retry(self.queue, held, due_ms=now_ms + int(pause_s * 1_000), now_ms=now_ms)
        return pause_s

    async def _complete(
        self, connection: Connection, answer: Answer, targets: int, held: Sequence[QueuedPurge], waits: UnderWay
    ) -> None:
        """Ask for the completion of an accepted purge until it is known; sent again if it was lost."""
        try:
            while isinstance(answer, Accepted):
                lease_ms = self._options.lease_ms + int(answer.ask_after_s * 1_000)
                await self._outbox.renew(self.queue, held, lease_ms=lease_ms, now_ms=self._clock())
                await self._sleep(answer.ask_after_s)
                try:
                    answer = await connection.completed(answer.ticket)
                except CdnError as error:
                    self._telemetry.failure("cdn", "cdn.away", error, cdn=self.place.name)
            if isinstance(answer, Delivered):
                await self._done(held)
                waits.done()
                return
            await self._failed(held, "cdn.refused", CdnError(answer.reason))
        except StoreError as error:  # the lease ends, and it is sent again
            self._telemetry.failure("store", "cdn.outbox_away", error)
        finally:
            waits.missed()
            self._open -= targets
            self._wake.set()

    async def _release(self, held: Sequence[QueuedPurge]) -> None:
        if held:
            await self._own.told(held)
            now_ms = self._clock()
            await self._outbox.retry(self.queue, held, due_ms=now_ms, failed=False, now_ms=now_ms)

    def _healthy(self) -> None:
        self.state = "ok" if self.state == "dark" else self.state
        self._pause_s = self._options.limits.first_retry_ms / 1_000
        self._pace.largest = min(_MOST_AT_ONCE, 2 * self._pace.largest)

    def _paused(self) -> float:
        """The next pause: doubled each time, and not the same in all processes."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, max(LAST_PAUSE_S, self._options.limits.last_retry_ms / 1_000))
        return pause_s * random.uniform(0.5, 1.0)

    def _count_answer(self, answer: str) -> None:
        self._telemetry.purging.requests.labels(self.place.name, answer).inc()

    async def _watch(self) -> None:
        """Once a second: what others have sent for this process, and how the place takes purges."""
        while True:
            await asyncio.sleep(1.0)
            with suppress(StoreError):  # told by what sends
                self.state = await self.watched.look(self.state)
