"""Requests of one sender to a place without rates: several under way at once, so that no purge waits for the answer to another.

Purges of this process are sent at once. While requests are under way, the sender looks now and then for purges that are due again
or that other processes left behind. Such due purges come in bursts, and no caller waits for them. Due purges therefore go in
separate requests, one at a time while there are few, and take at most half of the room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from quaestor.cdn_adapters.answer_handling import AnswerHandling
from quaestor.cdn_adapters.capabilities import UNBOUNDED
from quaestor.cdn_adapters.own_purges import OwnPurges
from quaestor.cdn_adapters.pacing import Pacing
from quaestor.cdn_adapters.place import Connection, Place
from quaestor.cdn_adapters.purge_request import PurgeRequest, purge_requests
from quaestor.cdn_adapters.requests import at_once
from quaestor.cdn_adapters.sender_options import LAST_PAUSE_S, MOST_AT_ONCE, POLL_S, SenderOptions
from quaestor.clock import Clock
from quaestor.errors import StoreError
from quaestor.observability.telemetry import Telemetry
from quaestor.purge_ports import PurgeOutbox, QueuedPurge
from quaestor.runtime.supervision.supervisor import Errands
from quaestor.tasks import Rests, ended

_DUE_AT_ONCE: Final = 100
"""Due purges of one look, if each is a request: few enough to be sent before their lease ends."""
_DUE_EACH: Final = 16
"""Due purges for each request of them that may be under way."""
_LONGEST_REST_S: Final = 0.01
"""Seconds between two requests to a place that takes several purges in one."""


class SideBySide:
    """Requests to one place without rates. Use from one event loop.

    own: purges that this process has put in.
    token: makes a name for the purges of one look.
    wake: set when there may be work.

    With a pause after each request (`BatchLimits.pause_ms`) the requests follow each other.
    """

    def __init__(
        self,
        place: Place,
        outbox: PurgeOutbox,
        queue: str,
        *,
        own: OwnPurges,
        pace: Pacing,
        handling: AnswerHandling,
        options: SenderOptions,
        token: Callable[[], str],
        telemetry: Telemetry,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        wake: asyncio.Event,
        errands: Errands,
    ) -> None:
        self._errands = errands
        self._capabilities = place.capabilities
        self._outbox = outbox
        self._queue = queue
        self._own = own
        self._pace = pace
        self._handling = handling
        self._options = options
        self._token = token
        self._telemetry = telemetry
        self._clock = clock
        self._sleep = sleep
        self._wake = wake
        self._most = at_once(options.limits)
        self._due: deque[QueuedPurge] = deque()
        self._ready: deque[tuple[PurgeRequest, bool]] = deque()
        self._taken: set[QueuedPurge] = set()
        self._sending: dict[asyncio.Task[None], PurgeRequest] = {}
        self._under_way = self._due_under_way = 0
        self._turn_of_due = False
        self._looking: asyncio.Task[None] | None = None
        self._look_due_s, self._look_pause_s = 0.0, POLL_S
        self._rests = Rests(_LONGEST_REST_S)
        self._pause_s = 0.0
        self._mistaken = False

    async def run(self, connection: Connection) -> None:
        """Send until cancelled, or until a bug here or in a provider's module requires another connection. Raises StoreError."""
        self._mistaken = False
        self._under_way = self._due_under_way = 0
        try:
            while self._sending or not self._mistaken:
                self._wake.clear()
                await self._step(connection)
        finally:
            await ended([*self._sending, self._looking])

    def left(self) -> list[QueuedPurge]:
        """Return the purges that are taken and not done, for the caller to put back. Never call it while run() goes on."""
        taken = list(self._taken)
        for some in (self._taken, self._ready, self._due):
            some.clear()
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
            left_s = self._look_due_s - asyncio.get_running_loop().time()
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
        self._sending[task] = request
        task.add_done_callback(self._ended)
        self._under_way += 1
        self._due_under_way += due
        if self._capabilities.gathers and not due and not self._ready:  # purges that arrive meanwhile go together
            await asyncio.wait({answered}, timeout=_LONGEST_REST_S)
            if self._own.waiting:
                self._rests.worked(begun_s)

    async def _send(
        self, connection: Connection, request: PurgeRequest, answered: asyncio.Future[None], *, due: bool
    ) -> None:
        def free() -> None:
            answered.set_result(None)
            self._under_way -= 1
            self._due_under_way -= due
            self._wake.set()

        again: tuple[PurgeRequest, ...] = ()
        try:
            pause_s, again = await self._handling.send(connection, request, free)
            self._pause_s = max(self._pause_s, pause_s)
            self._ready.extendleft((one, due) for one in reversed(again))
        except StoreError as error:  # the purges come back when their lease ends
            self._telemetry.failure("store", "cdn.outbox_away", error)
        except Exception as error:  # here too the purges come back
            self._errands.failed(error)
            self._mistaken = True
        if not again:
            self._taken.difference_update(request.held)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._sending[task]
        self._wake.set()

    @property
    def _room(self) -> bool:
        """Whether another request may be sent now."""
        if self._most == 1 or self._mistaken:
            return not (self._sending or self._mistaken)
        return self._under_way < self._most and len(self._sending) < MOST_AT_ONCE

    def _take(self) -> None:
        """Take the next purges to send: own purges or due ones, by turns if there are both.

        A place that takes several purges in one request gets up to MOST_AT_ONCE; another place gets one.
        """
        most = min(self._free_targets, MOST_AT_ONCE if self._capabilities.gathers else 1)
        if most < 1:
            return
        room = min(max(1, self._most // 2), 1 + len(self._due) // _DUE_EACH)
        may_be_due = bool(self._due) and self._due_under_way < room
        taken = [] if may_be_due and self._turn_of_due else self._own.take(most)
        self._taken.update(taken)
        due = may_be_due and not taken
        if due:
            taken = [self._due.popleft() for _ in range(min(len(self._due), most))]
        self._turn_of_due = not due
        self._ready.extend((request, due) for request in purge_requests(self._pace.requests(), taken))

    @property
    def _free_targets(self) -> int:
        """Targets that may be sent beyond the targets under way."""
        if not self._capabilities.asynchronous:
            return UNBOUNDED
        sending = sum(len(request.targets) for request in self._sending.values())
        return self._capabilities.open_targets - self._handling.open_targets - sending

    def _look(self) -> None:
        """Begin to look for due purges, if it is time, and go on meanwhile."""
        late = asyncio.get_running_loop().time() >= self._look_due_s
        count = min(self._free_targets, MOST_AT_ONCE if self._capabilities.gathers else _DUE_AT_ONCE)
        if late and count > 0 and self._looking is None and len(self._due) < _DUE_EACH and not self._mistaken:
            self._look_due_s = asyncio.get_running_loop().time() + self._look_pause_s
            self._looking = self._errands.start(self._take_due(count))

    async def _take_due(self, count: int) -> None:
        try:
            due = await self._outbox.take(
                self._queue, token=self._token(), count=count, lease_ms=self._options.lease_ms, now_ms=self._clock()
            )
            self._taken.update(due)
            self._due.extend(due)
            self._look_pause_s = POLL_S
            if len(due) >= count:  # there may be more
                self._look_due_s = 0.0
        except StoreError as error:
            self._look_pause_s = min(2 * self._look_pause_s, LAST_PAUSE_S)
            self._telemetry.failure("store", "cdn.outbox_away", error)
        finally:
            self._looking = None
            self._wake.set()

    async def _pause(self) -> None:
        """Put the waiting purges back, and send nothing for a while. Requests that fail meanwhile share the pause."""
        if self._looking is not None:
            await asyncio.wait({self._looking})
        waiting = [*self._due, *(purge for request, _ in self._ready for purge in request.held)]
        self._due.clear()
        self._ready.clear()
        self._taken.difference_update(waiting)
        try:
            await self._handling.release(waiting)
        except StoreError as error:  # the purges come back when their lease ends
            self._telemetry.failure("store", "cdn.outbox_away", error)
        pause_s = self._pause_s
        await self._sleep(pause_s)
        self._pause_s = max(0.0, self._pause_s - pause_s)
        self._look_due_s = 0.0  # look at once for the purges that were put back

    async def _idle(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
