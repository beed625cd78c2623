"""Round trips to one server from one event loop: commands of one turn of the loop go together, on kept connections.

Each round trip has a connection of its own. Only few connections are kept, of a small pool none, and none beyond its use:
the others are free for other users of the client. All are given back when the loop ends.
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
"""Divisor of a pool's connections that gives the largest number kept."""
IDLE_S: Final = 5.0
"""Time without use after which a connection is given back."""
_MOST: Final = 32
"""Largest number of commands in a round trip: commands behind a large reply wait for it."""

_Asked = tuple[Command, asyncio.Future[Any]]
"""Command, and the future of its reply."""


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
        """Return the future reply, or RedisError, OSError. A command cancelled before the loop's next turn is not sent."""
        reply = self.loop.create_future()
        if not self._waiting:
            self._wake_worker()
        self._waiting.append((command, reply))
        return reply

    async def forget(self) -> None:
        """Give back connections that were in use when their loop was closed."""
        while self._workers:
            _, connection = self._workers.popitem()
            await connection.give_back(broken=True)

    def _wake_worker(self) -> None:
        """Let an idle or new worker take the waiting commands in the loop's next turn."""
        while self._idle:
            woken = self._idle.pop()
            self._least_idle = min(self._least_idle, len(self._idle))
            if not woken.done():
                woken.set_result(True)
                return
        connection = KeptConnection(self._pool)
        # In a context of its own, not in that of the request that happens to be the first.
        task = self.loop.create_task(self._work(connection), context=Context())
        self._workers[task] = connection
        task.add_done_callback(self._workers.pop)

    async def _work(self, connection: KeptConnection) -> None:
        """Send waiting commands on this connection, until it is no longer needed or the loop ends."""
        try:
            while (batch := self._taken()) or await self._woken():
                if batch:
                    await self._round_trip(connection, batch)
        except asyncio.CancelledError:
            await connection.give_back(broken=True)
            raise
        await connection.give_back()

    def _taken(self) -> list[_Asked]:
        """Return the commands of the next round trip."""
        batch: list[_Asked] = []
        while self._waiting and len(batch) < _MOST:
            waiting = self._waiting.popleft()
            if not waiting[1].done():
                batch.append(waiting)
        if self._waiting:
            self._wake_worker()
        return batch

    async def _woken(self) -> bool:
        """Wait for work. False: this connection is no longer needed."""
        if len(self._idle) >= self._most_kept:
            return False
        woken: asyncio.Future[bool] = self.loop.create_future()
        self._idle.append(woken)
        if self._sweep is None:
            self._least_idle = len(self._idle)
            self._sweep = self.loop.call_later(IDLE_S, self._release_unused)
        return await woken

    def _release_unused(self) -> None:
        """End the workers that were idle all the time since the last call."""
        unused, self._idle = self._idle[: self._least_idle], self._idle[self._least_idle :]
        for woken in unused:
            if not woken.done():
                woken.set_result(False)
        self._least_idle = len(self._idle)
        self._sweep = self.loop.call_later(IDLE_S, self._release_unused) if self._idle else None

    async def _round_trip(self, connection: KeptConnection, batch: list[_Asked]) -> None:
        """Give each waiting caller its reply, or the error."""
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
