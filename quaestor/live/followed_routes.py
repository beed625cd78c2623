"""Followed routes of one app: groups followers by answer, grants places, and ends all streams."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from quaestor.live.answers import Named, Reader, Scope
from quaestor.live.followers import End, Follower, Places
from quaestor.live.following import Following
from quaestor.read_path.entry_watches import EntryWatches
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.runtime.supervision.supervisor import KeptTask

TICK_S = 0.5


class FollowedRoutes:
    """Followed answers of one process. Use from one event loop.

    stopping: whether the process ends; streams then end, and no stream begins.
    errands: tasks of the followers.
    """

    def __init__(self, reader: Reader, *, watches: EntryWatches, process: ProcessContext) -> None:
        settings, supervisor = process.settings, process.supervisor
        self.reader = reader
        self.settings = settings.realtime
        self.telemetry = process.telemetry
        self.places = Places(
            most=settings.realtime.live_followers, most_of_one=settings.realtime.live_followers_of_client
        )
        self.stopping = False
        self._watches = watches
        self._supervisor = supervisor
        self.errands = supervisor.errands("live")
        self._shared: dict[str, Following] = {}
        self._running: dict[Following, asyncio.Task[None]] = {}
        self._ticker: KeptTask | None = None

    @asynccontextmanager
    async def place(self, scope: Scope) -> AsyncIterator[str]:
        """Place for one client. Yields the reason if there is none, or an empty text."""
        client = (scope.get("client") or ("",))[0]
        refused = "stopping" if self.stopping else self.places.refusal(client)
        if refused:
            self.telemetry.followers.refused.labels(refused).inc()
            yield refused
            return
        give_back = self.places.take(client)
        try:
            yield ""
        finally:
            give_back()

    def follow(self, follower: Follower, named: Named, *, alone: bool = False) -> Following:
        """Begin to offer a follower the answers to its request. leave() must follow.

        alone: whether the answers are for no other client.
        """
        if self._ticker is None or self._ticker.done:
            self._ticker = self._supervisor.keep("live", self._tick)
        shares = named.key is not None and not alone
        following = self._shared.get(named.key) if shares and named.key is not None else None
        if following is None:
            following = self._begin(named, shares=shares)
        following.join(follower)
        return following

    def _begin(self, named: Named, *, shares: bool) -> Following:
        poll_s = None if named.live is None else named.live.poll
        following = Following(
            named.key or "", reader=self.reader, watches=self._watches, telemetry=self.telemetry, shares=shares,
            poll_s=poll_s, interval_s=self.settings.live_interval_ms / 1000,
        )  # fmt: skip
        if shares:
            self._shared[following.key] = following
        self._running[following] = self.errands.start(self._run(following))
        return following

    async def _run(self, following: Following) -> None:
        try:
            await following.run()
        except Exception:
            for follower in list(following.followers):
                follower.end(End("failed"))
            raise

    def leave(self, follower: Follower, following: Following) -> None:
        """Stop offering answers to a follower. When the last one leaves, the loop and its watches end."""
        following.leave(follower)
        if not following.followers:
            if self._shared.get(following.key) is following:
                del self._shared[following.key]
            task = self._running.pop(following, None)
            if task is not None:
                task.cancel()

    def reconnect_ms(self) -> int:
        """Random time after which a client connects again, so that not all clients come at once."""
        return random.randint(500, self.settings.live_reconnect_ms)

    async def _tick(self) -> None:
        """Check at intervals for events without a notification: a reset, a grid that lags, a server that is about to stop."""
        while True:
            await asyncio.sleep(TICK_S)
            if server_stops():
                self.end_all()
            for following in list(self._running):
                following.look()

    def end_all(self) -> None:
        """End all streams, because this process stops. Clients connect again, to another one."""
        self.stopping = True
        for following in self._running:
            for follower in following.followers:
                follower.end(End("stopping"))

    async def stop(self) -> None:
        """End all streams and loops."""
        self.end_all()
        if self._ticker is not None:
            await self._ticker.aclose()
            self._ticker = None
        await self.errands.aclose()
        self._running.clear()
        self._shared.clear()
        self.stopping = False

    def counts(self) -> tuple[int, int]:
        """Number of followers, and of followed answers."""
        return self.places.total, len(self._running)


def server_stops() -> bool:
    """Whether the server of this process is about to stop: uvicorn waits for open streams before the lifespan ends.

    The server is found as the owner of the handler of SIGTERM.
    """
    owner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(owner, "should_exit", False) is True
