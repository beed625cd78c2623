"""Round trips to one server from one event loop: what is asked for in one turn of the loop goes together, on connections that are
kept from one round trip to the next.

Each round trip has a connection of its own. Few of these are kept, of a small pool none, and none for longer than there is use
for it: the others are there for whoever else uses the client. When the loop ends they are given back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context
from typing import Any, Final

import redis.asyncio
from redis.exceptions import ResponseError

from quaestor.redis.kept_connection import Command, KeptConnection

MOST_KEPT: Final = 8
SHARE: Final = 8
"""One in so many of a pool's connections is kept at most."""
IDLE_S: Final = 5.0
"""After so long without use a connection is given back."""
_MOST: Final = 32
"""Commands of one round trip: who is behind a large reply waits for it."""

_Asked = tuple[Command, asyncio.Future[Any]]
"""A command, and where its reply goes."""


class RoundTrips:
    """Commands on their way to one server. Only for the event loop in which it was made."""

    def __init__(self, pool: redis.asyncio.ConnectionPool) -> None:
        self.loop = asyncio.get_running_loop()
        self._pool = pool
        self._most_kept = min(MOST_KEPT, pool.max_connections // SHARE)
        self._waiting: deque[_Asked] = deque()
        self._workers: dict[asyncio.Task[None], KeptConnection] = {}
        self._idle: list[asyncio.Future[bool]] = []
        self._least_idle = 0
        self._sweep: asyncio.TimerHandle | None = None

    def ask(self, command: Command) -> asyncio.Future[Any]:
        """The reply to come, or RedisError, OSError. What is cancelled before the loop's next turn is not sent."""
        reply = self.loop.create_future()
        if not self._waiting:
            self._wake_worker()
        self._waiting.append((command, reply))
        return reply

    async def forget(self) -> None:
        """Give back what the loop left, which has been closed while connections were in use."""
        while self._workers:
            _, connection = self._workers.popitem()
            await connection.give_back(broken=True)

    def _wake_worker(self) -> None:
        """Have a worker take what waits in the loop's next turn: one that is idle, or another one."""
        while self._idle:
            woken = self._idle.pop()
            self._least_idle = min(self._least_idle, len(self._idle))
            if not woken.done():
                woken.set_result(True)
                return
        connection = KeptConnection(self._pool)
        # In a context of its own: not in that of the request which happens to be the first.
        task = self.loop.create_task(self._work(connection), context=Context())
        self._workers[task] = connection
        task.add_done_callback(self._workers.pop)

    async def _work(self, connection: KeptConnection) -> None:
        """Send what waits on this connection, until there is no use for it, or the loop ends."""
        try:
            while (batch := self._taken()) or await self._woken():
                if batch:
                    await self._round_trip(connection, batch)
        except asyncio.CancelledError:
            await connection.give_back(broken=True)
            raise
        await connection.give_back()

    def _taken(self) -> list[_Asked]:
        """What goes in the next round trip."""
        batch: list[_Asked] = []
        while self._waiting and len(batch) < _MOST:
            asked = self._waiting.popleft()
            if not asked[1].done():
                batch.append(asked)
        if self._waiting:
            self._wake_worker()
        return batch

    async def _woken(self) -> bool:
        """Wait until there is something to do. False: there is no use for this connection."""
        if len(self._idle) >= self._most_kept:
            return False
        woken: asyncio.Future[bool] = self.loop.create_future()
        self._idle.append(woken)
        if self._sweep is None:
            self._least_idle = len(self._idle)
            self._sweep = self.loop.call_later(IDLE_S, self._release_unused)
        return await woken

    def _release_unused(self) -> None:
        """End as many workers as there was no use for since the last time."""
        unused, self._idle = self._idle[: self._least_idle], self._idle[self._least_idle :]
        for woken in unused:
            if not woken.done():
                woken.set_result(False)
        self._least_idle = len(self._idle)
        self._sweep = self.loop.call_later(IDLE_S, self._release_unused) if self._idle else None

    async def _round_trip(self, connection: KeptConnection, batch: list[_Asked]) -> None:
        """Give each of those who wait for these a reply, or the error."""
        try:
            answers = await connection.exchange([command for command, _ in batch])
        except Exception as error:
            for _, reply in batch:
                if not reply.done():
                    reply.set_exception(error)
            return
        except asyncio.CancelledError:
            for _, reply in batch:
                reply.cancel()
            raise
        for (_, reply), answer in zip(batch, answers, strict=True):
            if reply.done():
                continue
            if isinstance(answer, ResponseError):
                reply.set_exception(answer)
            else:
                reply.set_result(answer)
