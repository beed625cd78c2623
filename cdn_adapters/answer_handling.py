"""Handling of the answers to a sender's requests: purges are done, put back with growing pauses, or become dead letters.

Several requests may be under way at once. An answer concerns only the purges of its own request. When several requests fail
together, only the first failure makes the next pause longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from quaestor.cdn_adapters.acknowledgements import Acknowledgements
from quaestor.cdn_adapters.answers import Accepted, Answer, Delivered, Rejected, Throttled
from quaestor.cdn_adapters.batching import Outcome, PurgeEvent
from quaestor.cdn_adapters.pacing import Pacing
from quaestor.cdn_adapters.place import Connection, Place, Target
from quaestor.cdn_adapters.place_queue import PlaceQueue
from quaestor.cdn_adapters.purge_members import ON_ITS_WAY, TIERS, target_of
from quaestor.cdn_adapters.purge_request import PurgeRequest
from quaestor.cdn_adapters.purge_waits import UnderWay
from quaestor.cdn_adapters.sender_options import (
    LONGEST_HOLD_S,
    MOST_AT_ONCE,
    GrowingPause,
    SenderContext,
)
from quaestor.errors import CdnError, StoreError
from quaestor.purge_ports import QueuedPurge
from quaestor.runtime.supervision.supervisor import Errands
from quaestor.tasks import ended

TIER_SLACK_MS: Final = 500
"""Delay beyond a provider's bound, before the tiers are purged again."""


class LowerSender(Protocol):
    """Sender of a place that the place of this sender fills."""

    place: Place

    async def put(self, targets: Sequence[Target], *, until_ms: int) -> Callable[[], Awaitable[None]]:
        """Put purges into the outbox. Raises StoreError."""


class Handled(NamedTuple):
    """Consequences of an answer for the next requests.

    pause_s: before the next request.
    again: requests to send in the place of a refused one.
    """

    pause_s: float = 0.0
    again: tuple[PurgeRequest, ...] = ()


class AnswerHandling:
    """Handling of the answers to one sender's requests. Use from one event loop.

    below: see Sender.
    wake: called when a purge that was only accepted is over.
    state: see Sender.
    open_targets: targets of requests that were accepted and are not completed.
    """

    def __init__(
        self,
        queue: PlaceQueue,
        pace: Pacing,
        context: SenderContext,
        errands: Errands,
        *,
        observe: Callable[[PurgeEvent], None],
        below: Sequence[LowerSender],
        wake: Callable[[], None],
    ) -> None:
        self.state = "ok"
        self.open_targets = 0
        self._queue = queue
        self._pace = pace
        self._errands = errands
        self._telemetry = context.telemetry
        self._sleep = context.sleep
        self._observe = observe
        self._below = tuple(below)
        self._wake = wake
        self._acknowledgements = Acknowledgements(self._tell_done)
        self._pauses = GrowingPause(queue.options.limits)
        self._accepted: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """End. Purges whose acknowledgement has not reached the outbox by then come back."""
        await ended(self._accepted)
        await self._acknowledgements.aclose()

    async def send(
        self, connection: Connection, request: PurgeRequest, answered: Callable[[], None] = lambda: None
    ) -> Handled:
        """Send one request and act on the answer. Raises StoreError if the outbox does not answer.

        answered: called when the place has answered or failed to answer.
        """
        waits = self._queue.waits.under_way([purge.member for purge in request.held])
        failures = self._pauses.failures
        answer: Answer | CdnError
        try:
            try:
                answer = await connection.send(request.targets)
            except CdnError as error:
                answer = error
            finally:
                answered()
                await self._pace.answered()
                await self._queue.own.recorded(request.held)
            if isinstance(answer, CdnError):
                waits.missed()
                await self._pace.refused(request.targets)
                event = "cdn.away" if answer.retryable else "cdn.refused"
                return Handled(await self._failed(request.held, event, answer, failures))
            return await self._answered(connection, request, answer, waits, failures)
        except BaseException:  # the purges are sent again, and their waits go on
            waits.missed()
            raise

    def paused_s(self, failures: int | None = None) -> float:
        """See GrowingPause."""
        return self._pauses.next_s(failures)

    async def _answered(
        self, connection: Connection, request: PurgeRequest, answer: Answer, waits: UnderWay, failures: int
    ) -> Handled:
        targets, held = request
        if answer.pace is not None and answer.pace.remaining < 1:
            await self._pace.hold(targets[0].by, answer.pace.reset_s)
        if isinstance(answer, Accepted):
            self._count_answer("accepted")
            self._healthy()
            self.open_targets += len(targets)
            task = self._errands.start(self._complete(connection, answer, len(targets), held, waits))
            self._accepted.add(task)
            task.add_done_callback(self._accepted.discard)
            return Handled(self._queue.options.limits.pause_ms / 1_000)
        if isinstance(answer, Delivered):
            await self._done(held)
            waits.done()
            self._healthy()
            self._observe(PurgeEvent(place=self._queue.place.address, outcome=Outcome.PURGED, targets=len(targets)))
            return Handled(self._queue.options.limits.pause_ms / 1_000)
        waits.missed()
        await self._pace.refused(targets)
        return await self._not_taken(request, answer, failures)

    async def _done(self, held: Sequence[QueuedPurge]) -> None:
        await self._acknowledgements.done(held)
        self._count_answer("delivered")
        self._telemetry.invalidations.purges.labels(self._queue.place.name, "done").inc(len(held))

    async def _tell_done(self, held: Sequence[QueuedPurge]) -> None:
        now_ms = self._queue.clock()
        capabilities = self._queue.place.capabilities
        again = [(ON_ITS_WAY, now_ms + self._queue.options.repurge_after_ms)]
        if capabilities.tiered:
            again.append((TIERS, now_ms + capabilities.effective_within_ms + TIER_SLACK_MS))
        for sender in self._below:  # before the outbox forgets the purges, so that none is lost in between
            kinds = sender.place.capabilities.kinds
            targets = [
                target for target in dict.fromkeys(target_of(purge.member) for purge in held) if target.by in kinds
            ]
            if targets:
                await sender.put(targets, until_ms=max(purge.until_ms for purge in held))
        await self._queue.outbox.done(self._queue.name, held, again=again, now_ms=now_ms)

    async def _not_taken(self, request: PurgeRequest, answer: Rejected | Throttled, failures: int) -> Handled:
        """Act on a refusal."""
        targets, held = request
        if isinstance(answer, Throttled):
            self.state = "throttled"
            self._count_answer("throttled")
            pause_s = answer.retry_after_s or self.paused_s(failures)
            await self._pace.hold(targets[0].by, pause_s)
            self._telemetry.failure("cdn", "cdn.throttled", answer.reason, cdn=self._queue.place.name)
            await self._queue.release(held)
            return Handled(min(pause_s, LONGEST_HOLD_S) if self._queue.limited else pause_s)
        if answer.place_wide:
            return Handled(await self._failed(held, "cdn.refused", CdnError(answer.reason), failures))
        self._count_answer("rejected")
        if len(targets) > 1 and not self._queue.limited:
            return Handled(again=request.halves())
        if len(targets) > 1:  # halve the batches until the refused target is alone
            self._pace.largest = max(1, len(targets) // 2)
            await self._queue.release(held)
        else:
            self._telemetry.failure("cdn", "cdn.dead_letter", answer.reason, cdn=self._queue.place.name)
            await self._queue.bury(held, reason=answer.reason)
        return Handled()

    async def _failed(
        self, held: Sequence[QueuedPurge], event: str, error: CdnError, failures: int | None = None
    ) -> float:
        """Put these purges back; return the pause before the next request, in seconds."""
        self.state = "dark"
        self._count_answer("failed")
        self._telemetry.invalidations.purges.labels(self._queue.place.name, "failed").inc(len(held))
        self._telemetry.failure("cdn", event, error, cdn=self._queue.place.name)
        self._observe(
            PurgeEvent(place=self._queue.place.address, outcome=Outcome.FAILED, targets=len(held), error=error)
        )
        pause_s = error.retry_after_s or self.paused_s(failures)
        await self._queue.retry(held, after_s=pause_s)
        return pause_s

    async def _complete(
        self, connection: Connection, answer: Answer, targets: int, held: Sequence[QueuedPurge], waits: UnderWay
    ) -> None:
        """Poll an accepted purge until it is completed; put the purge back if the place lost it."""
        try:
            while isinstance(answer, Accepted):
                await self._queue.renew(held, further_s=answer.ask_after_s)
                await self._sleep(answer.ask_after_s)
                try:
                    answer = await connection.completed(answer.ticket)
                except CdnError as error:
                    self._telemetry.failure("cdn", "cdn.away", error, cdn=self._queue.place.name)
            if isinstance(answer, Delivered):
                await self._done(held)
                waits.done()
                return
            await self._failed(held, "cdn.refused", CdnError(answer.reason))
        except StoreError as error:  # the lease ends, and the purge is sent again
            self._telemetry.failure("store", "cdn.outbox_away", error)
        finally:
            waits.missed()
            self.open_targets -= targets
            self._wake()

    def _healthy(self) -> None:
        self.state = "ok" if self.state == "dark" else self.state
        self._pauses.reset()
        self._pace.largest = min(MOST_AT_ONCE, 2 * self._pace.largest)

    def _count_answer(self, answer: str) -> None:
        self._telemetry.purging.requests.labels(self._queue.place.name, answer).inc()
