"""Connections of the driver's pool that are kept from one command to the next: what the pool does for each loan, and the driver
for each timeout, takes longer than most commands do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import hiredis
import redis.asyncio
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

MOST_KEPT: Final = 8
"""Idle ones; others go back to the pool at once. They stay part of it: who closes its client closes them."""


class KeptConnections:
    """Connections to one server, for whoever has several commands to send at once. Use from one event loop at a time."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._pool = client.connection_pool
        self._timeout_s: float | None = self._pool.connection_kwargs.get("socket_timeout")
        self._idle: list[Any] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def exchange(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies to these, or the server's errors in their place. Raises RedisError, OSError.

        The first reply, and each after the one before it, is waited for as long as the client's timeout says.
        """
        connection = await self._taken()
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                await self._pool.ensure_connection(connection)
                answers = await self._replies(connection, commands, deadline)
        except BaseException as error:
            await connection.disconnect(nowait=True)  # replies may be on their way
            await self._give_back(connection)
            if isinstance(error, TimeoutError) and deadline.expired():
                raise RedisTimeoutError(f"no answer from Redis within {self._timeout_s} s") from error
            raise
        if len(self._idle) < MOST_KEPT and self._loop is asyncio.get_running_loop():
            self._idle.append(connection)
        else:
            await self._give_back(connection)
        return answers

    async def _replies(
        self, connection: Any, commands: Sequence[tuple[Any, ...]], deadline: asyncio.Timeout
    ) -> list[Any]:
        """By a connection of the driver: its pipeline puts the commands, with what they hold, into the texts of errors, and
        packs them in Python."""
        answers: list[Any] = []
        await connection.send_packed_command([hiredis.pack_command(command) for command in commands])
        for _ in commands:
            if answers and self._timeout_s is not None:
                deadline.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
            try:
                answers.append(await connection.read_response())
            except ResponseError as error:
                answers.append(error)
        return answers

    async def _taken(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            await self._forget_all()
            self._loop = loop
        if self._idle:
            return self._idle.pop()
        connection: Any = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        connection.socket_timeout = None  # one deadline for all instead: the driver makes a task for each
        return connection

    async def _give_back(self, connection: Any) -> None:
        connection.socket_timeout = self._timeout_s
        await self._pool.release(connection)

    async def _forget_all(self) -> None:
        """Close those of an event loop that is over."""
        idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(RuntimeError):  # the loop that it belongs to is closed
                await connection.disconnect(nowait=True)
            await self._give_back(connection)
