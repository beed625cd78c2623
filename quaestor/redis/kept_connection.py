"""Connection of the driver's pool that is kept from one round trip to the next: what the pool does for each loan, and the driver
for each timeout, takes longer than most commands do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import hiredis
import redis.asyncio
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

Command = tuple[Any, ...]


class KeptConnection:
    """One connection, lent on first use and until give_back(). It stays part of its pool, so who closes the client closes it. Use
    from one task."""

    def __init__(self, pool: redis.asyncio.ConnectionPool) -> None:
        self._pool = pool
        self._timeout_s: float | None = pool.connection_kwargs.get("socket_timeout")
        self._connection: Any = None

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to these, or the server's errors in their place. Raises RedisError, OSError; what comes after that goes on
        another connection.

        The first reply, and each after the one before it, is waited for as long as the client's timeout says.
        """
        try:
            if self._connection is None:
                self._connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
                self._connection.socket_timeout = None  # one deadline for all instead: the driver makes a task for each
            return await self._replies(self._connection, commands)
        except Exception:
            await self.give_back(broken=True)
            raise

    async def _replies(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        """By a connection of the driver's: its pipeline puts the commands, with what they hold, into the texts of errors, and
        packs them in Python."""
        answers: list[Any] = []
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                await self._pool.ensure_connection(connection)
                await connection.send_packed_command([hiredis.pack_command(command) for command in commands])
                for _ in commands:
                    if answers and self._timeout_s is not None:
                        deadline.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
                    try:
                        answers.append(await connection.read_response())
                    except ResponseError as error:
                        answers.append(error)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise RedisTimeoutError(f"no answer from Redis within {self._timeout_s} s") from error
        return answers

    async def give_back(self, *, broken: bool = False) -> None:
        """Give the connection back to the pool, if there is one.

        broken: it is closed: replies may be on their way.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if broken:
            with suppress(RedisError, OSError, RuntimeError):  # the loop that it belongs to may be closed
                await connection.disconnect(nowait=True)
        connection.socket_timeout = self._timeout_s
        await self._pool.release(connection)
