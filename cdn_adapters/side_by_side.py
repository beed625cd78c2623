"""Requests of one sender to a place without rates: several under way at once, so that no purge waits for the answer to another.

Purges of this process are sent at once. While requests are under way, the sender looks now and then for purges that are due again
or that other processes left behind. Such due purges come in bursts, and no caller waits for them. Due purges therefore go in
separate requests, one at a time while there are few, and take at most half of the room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final

from quaestor.cdn_adapters.answer_handling import AnswerHandling
from quaestor.cdn_adapters.capabilities import UNBOUNDED
from quaestor.cdn_adapters.due_purges import DUE_EACH, DuePurges
from quaestor.cdn_adapters.pacing import Pacing
from quaestor.cdn_adapters.place import Connection
from quaestor.cdn_adapters.place_queue import PlaceQueue
from quaestor.cdn_adapters.purge_request import PurgeRequest, purge_requests
from quaestor.cdn_adapters.requests import at_once
from quaestor.cdn_adapters.sender_options import MOST_AT_ONCE, POLL_S, SenderContext
from quaestor.errors import StoreError
from quaestor.purge_ports import QueuedPurge
from quaestor.runtime.supervision.supervisor import Errands
from quaestor.tasks import Rests, ended

_DUE_AT_ONCE: Final = 100
"""Due purges of one look, if each is a request: few enough to be sent before their lease ends."""
_LONGEST_REST_S: Final = 0.01
"""Seconds between two requests to a place that takes several purges in one."""


class RequestsUnderWay:
    """Requests under way to one place.

    tasks: each with its request, until the answer is handled.
    unanswered: number of requests that the place has not answered.
    unanswered_due: number of those with due purges.
    """

    def __init__(self) -> None:
        self.tasks: dict[asyncio.Task[None], PurgeRequest] = {}
        self.unanswered = self.unanswered_due = 0

    def began(self, task: asyncio.Task[None], request: PurgeRequest, *, due: bool) -> None:
        """Note that a request is sent."""
        self.tasks[task] = request
        self.unanswered += 1
        self.unanswered_due += due

    def answered(self, *, due: bool) -> None:
        """Note that the place has answered a request, or has failed to."""
        self.unanswered -= 1
        self.unanswered_due -= due


class SideBySide:
    """Requests to one place without rates. Use from one event loop.

    wake: set when there may be work.

    With a pause after each request (`BatchLimits.pause_ms`) the requests follow each other.
    """

    def __init__(
        self,
        queue: PlaceQueue,
        pace: Pacing,
        handling: AnswerHandling,
        context: SenderContext,
        errands: Errands,
        wake: asyncio.Event,
    ) -> None:
        self._queue = queue
        self._capabilities = queue.place.capabilities
        self._pace = pace
        self._handling = handling
        self._context = context
        self._errands = errands
        self._wake = wake
        self._most = at_once(queue.options.limits)
        self._due = DuePurges(queue, errands, context.telemetry, wake)
        self._ready: deque[tuple[PurgeRequest, bool]] = deque()
        self._requests = RequestsUnderWay()
        self._turn_of_due = False
        self._rests = Rests(_LONGEST_REST_S)
        self._pause_s = 0.0
        self._mistaken = False

    async def run(self, connection: Connection) -> None:
        """Send until cancelled, or until a bug here or in a provider's module requires another connection. Raises StoreError."""
        self._mistaken = False
        self._requests.unanswered = self._requests.unanswered_due = 0
        try:
            while self._requests.tasks or not self._mistaken:
                self._wake.clear()
                await self._step(connection)
        finally:
            await ended([*self._requests.tasks, self._due.looking])

    def left(self) -> list[QueuedPurge]:
        """Return the purges that are taken and not done, for the caller to put back. Never call it while run() goes on."""
        taken = list(self._queue.taken)
        self._queue.taken.clear()
        self._ready.clear()
        self._due.waiting.clear()
        return taken

    async def _step(self, connection: Connection) -> None:
        """Send one request, or wait until there is one, and room for it."""
        if self._pause_s:
            await self._pause()
            return
        begun_s = await self._rests.over()
        self._look()
        if not self._ready and self._room:
            self._take()
        if not (self._ready and self._room):
            left_s = self._due.look_due_s - asyncio.get_running_loop().time()
            await self._idle(left_s if 0 < left_s < POLL_S else POLL_S)
            return
        request, due = self._ready.popleft()
        self._pause_s = await self._pace.spend(request.targets) / 1_000
        if self._pause_s:
            self._handling.state = "throttled"
            self._ready.appendleft((request, due))
            return
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = self._errands.start(self._send(connection, request, answered, due=due))
        self._requests.began(task, request, due=due)
        task.add_done_callback(self._ended)
        if self._capabilities.gathers and not due and not self._ready:  # purges that arrive meanwhile go together
            await asyncio.wait({answered}, timeout=_LONGEST_REST_S)
            if self._queue.own.waiting:
                self._rests.worked(begun_s)

    async def _send(
        self, connection: Connection, request: PurgeRequest, answered: asyncio.Future[None], *, due: bool
    ) -> None:
        def free() -> None:
            answered.set_result(None)
            self._requests.answered(due=due)
            self._wake.set()

        again: tuple[PurgeRequest, ...] = ()
        try:
            pause_s, again = await self._handling.send(connection, request, free)
            self._pause_s = max(self._pause_s, pause_s)
            self._ready.extendleft((request, due) for request in reversed(again))
        except StoreError as error:  # the purges come back when their lease ends
            self._context.telemetry.failure("store", "cdn.outbox_away", error)
        except Exception as error:  # here too the purges come back
            self._errands.failed(error)
            self._mistaken = True
        if not again:
            self._queue.taken.difference_update(request.held)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._requests.tasks[task]
        self._wake.set()

    @property
    def _room(self) -> bool:
        """Whether another request may be sent now."""
        if self._most == 1 or self._mistaken:
            return not (self._requests.tasks or self._mistaken)
        return self._requests.unanswered < self._most and len(self._requests.tasks) < MOST_AT_ONCE

    def _take(self) -> None:
        """Take the next purges to send: own purges or due ones, by turns if there are both.

        A place that takes several purges in one request gets up to MOST_AT_ONCE; another place gets one.
        """
        most = min(self._free_targets, MOST_AT_ONCE if self._capabilities.gathers else 1)
        if most < 1:
            return
        waiting = len(self._due.waiting)
        room = min(max(1, self._most // 2), 1 + waiting // DUE_EACH)
        may_be_due = waiting > 0 and self._requests.unanswered_due < room
        taken = [] if may_be_due and self._turn_of_due else self._queue.own.take(most)
        self._queue.taken.update(taken)
        due = may_be_due and not taken
        if due:
            taken = self._due.take(most)
        self._turn_of_due = not due
        self._ready.extend((request, due) for request in purge_requests(self._pace.requests(), taken))

    @property
    def _free_targets(self) -> int:
        """Targets that may be sent beyond the targets under way."""
        if not self._capabilities.asynchronous:
            return UNBOUNDED
        sending = sum(len(request.targets) for request in self._requests.tasks.values())
        return self._capabilities.open_targets - self._handling.open_targets - sending

    def _look(self) -> None:
        if not self._mistaken:
            self._due.look(min(self._free_targets, MOST_AT_ONCE if self._capabilities.gathers else _DUE_AT_ONCE))

    async def _pause(self) -> None:
        """Put the waiting purges back, and send nothing for a while. Requests that fail meanwhile share the pause."""
        await self._due.looked()
        waiting = [*self._due.waiting, *(purge for request, _ in self._ready for purge in request.held)]
        self._due.waiting.clear()
        self._ready.clear()
        self._queue.taken.difference_update(waiting)
        try:
            await self._queue.release(waiting)
        except StoreError as error:  # the purges come back when their lease ends
            self._context.telemetry.failure("store", "cdn.outbox_away", error)
        pause_s = self._pause_s
        await self._context.sleep(pause_s)
        self._pause_s = max(0.0, self._pause_s - pause_s)
        self._due.look_due_s = 0.0  # look at once for the purges that were put back

    async def _idle(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
