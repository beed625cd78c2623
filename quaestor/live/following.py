"""The loop of one followed answer: read through the cache, offer what is new to the followers, wait for the end of the entry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from quaestor.live.answers import FollowedAnswer, Reader
from quaestor.live.encodings import Encodings
from quaestor.live.followers import End, Follower
from quaestor.observability.telemetry import Telemetry
from quaestor.read_path.entry_watches import EntryWatches

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 5.0
STALE_S = 0.5


class Following:
    """One followed answer of one process: however many followers it has, the handler runs once for a change.

    The watch on the entry begins before the entry is looked at again, so no change falls between the read and the wait.

    key: of the followed answer.
    shares: several followers may join. An answer that no two clients share has one follower.
    poll_s: time between two runs for an answer that cannot be stored; None: its followers end.
    interval_s: the shortest time between two reads.
    latest: the newest answer that all followers may be sent.
    encodings: of its answers.
    """

    def __init__(
        self,
        key: str,
        *,
        reader: Reader,
        watches: EntryWatches,
        telemetry: Telemetry,
        shares: bool,
        poll_s: float | None,
        interval_s: float,
    ) -> None:
        self.key = key
        self.shares = shares
        self.latest: FollowedAnswer | None = None
        self.encodings = Encodings()
        self.followers: dict[Follower, None] = {}
        self._reader = reader
        self._watches = watches
        self._telemetry = telemetry
        self._poll_s = poll_s
        self._interval_s = interval_s
        self._changed = asyncio.Event()
        self._retry_s = FIRST_RETRY_S
        self._reading = False
        self._read_at_s = 0.0
        self._turns: Iterator[Follower] = iter(())

    def join(self, follower: Follower) -> None:
        """Add a follower; the newest answer is offered at once, if it still is the answer."""
        self.followers[follower] = None
        follower.offered = b""
        if self.latest is not None and self._reader.valid(self.latest):
            follower.offer(self.latest)
        elif not self._reading:
            self._changed.set()

    def leave(self, follower: Follower) -> None:
        """Remove a follower. No error if it has left."""
        self.followers.pop(follower, None)

    def look(self) -> None:
        """Read again if the entry has ended without a notification, as at a reset, or cannot be served while the grid lags."""
        latest = self.latest
        if self._reading or latest is None or latest.entry is None:
            return
        if not self._reader.valid(latest):
            self._changed.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            follower = self._next()
            self._changed.clear()
            if follower is None:  # all have ended; the last one to leave ends this loop too, unless another one joins
                await self._wait(None)
                continue
            await self._rest()
            answer = await self._read(follower)
            if answer is None:
                await self._wait(self._slower())
            elif answer.entry is not None:
                await self._follow(answer)
            else:
                await self._unstored(follower, answer)

    async def _rest(self) -> None:
        """Keep the shortest time between two reads: changes that come quicker than that are one."""
        left_s = self._read_at_s + self._interval_s - time.monotonic()
        if left_s > 0:
            await asyncio.sleep(left_s)
        self._read_at_s = time.monotonic()

    async def _read(self, follower: Follower) -> FollowedAnswer | None:
        """Read for all, with the request of one. None: the handler has raised."""
        self._telemetry.followers.reads.inc()
        self._reading = True
        try:
            return await self._reader.read(follower.scope, withdrawn=self._changed.set)
        except Exception as error:
            self._telemetry.failure("handler", "live.read_failed", repr(error))
            return None
        finally:
            self._reading = False

    async def _follow(self, answer: FollowedAnswer) -> None:
        """Offer a stored answer, and wait until the entry has ended."""
        self._retry_s = FIRST_RETRY_S
        wake: Callable[[], None] = self._changed.set
        self._watches.watch(answer.names, wake)
        try:
            self._offer_all(answer)
            # Only now: an entry that died after the read and before the watch is read again at once.
            if self._reader.stands(answer):
                assert answer.entry is not None
                await self._wait(self._lives_s(answer))
        finally:
            self._watches.unwatch(answer.names, wake)

    def _lives_s(self, answer: FollowedAnswer) -> float:
        """Time until the entry's lifetime is over. A stale entry is being made anew: it is looked at again a moment later."""
        left_s = self._reader.lives_s(answer)
        return left_s if left_s > 0 else STALE_S

    async def _unstored(self, follower: Follower, answer: FollowedAnswer) -> None:
        reason = answer.reasons[0] if answer.reasons else "failed"
        if answer.unauthorized:
            self._end(follower, End("unauthorized", answer))
        elif reason == "scope" and answer.status < 400:
            self._end(follower, End("unauthorized"))
        elif answer.momentary:
            if answer.status < 500 and answer.shared:
                self._offer_all(answer)
            elif answer.status < 500:
                follower.offer(answer)
            await self._wait(self._slower())
        elif answer.status >= 400:
            self._end(follower, End(reason, answer))
        elif self._poll_s is None or self.shares:
            # With a poll, followers come back, each with a loop of its own: nobody knows whom the answer is for.
            for ended in list(self.followers):
                self._end(ended, End(reason))
        else:
            follower.offer(answer)
            await self._wait(self._poll_s)

    def _offer_all(self, answer: FollowedAnswer) -> None:
        self.latest = answer
        for follower in list(self.followers):
            if follower.offered != answer.etag:
                follower.offer(answer)

    def _end(self, follower: Follower, end: End) -> None:
        follower.end(end)
        self.leave(follower)

    async def _wait(self, within_s: float | None) -> None:
        """Wait until something has changed, or until the time is over."""
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _slower(self) -> float:
        """Time before the next attempt: longer each time."""
        retry_s, self._retry_s = self._retry_s, min(LAST_RETRY_S, 2 * self._retry_s)
        return retry_s

    def _next(self) -> Follower | None:
        """The follower whose request is read with: in turn, so none depends on another one's credentials for ever."""
        for follower in self._turns:
            if follower in self.followers:
                return follower
        self._turns = iter(list(self.followers))
        return next(self._turns, None)
