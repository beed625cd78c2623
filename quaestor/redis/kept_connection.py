"""Connection of the driver's pool, kept from one round trip to the next.

The pool's work for each loan, and the driver's for each timeout, take longer than most commands.
"""

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
    """One connection, borrowed at first use and kept until give_back().

    The connection stays part of its pool, so closing the client closes it. Use from one task.
    """

    def __init__(self, pool: redis.asyncio.ConnectionPool) -> None:
        self._pool = pool
        self._timeout_s: float | None = pool.connection_kwargs.get("socket_timeout")
        self._connection: Any = None

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Return the replies to these commands, with the server's errors in their place. Raises RedisError, OSError.

        After a failure the next exchange uses another connection. The client's timeout bounds the wait for the first reply,
        and for each further one.
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
        """Return the replies, over the driver's connection instead of its pipeline.

        The pipeline puts the commands, with their content, into the texts of errors, and packs them in Python.
        """
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

        broken: close it, because replies may be on their way.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if broken:
            with suppress(RedisError, OSError, RuntimeError):  # the loop of the connection may be closed
                await connection.disconnect(nowait=True)
        connection.socket_timeout = self._timeout_s
        await self._pool.release(connection)
