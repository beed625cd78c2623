"""Commands to the shared Redis, those of several requests in one round trip: what is asked for in one turn of the event loop is
sent together, on one connection, and its replies are read together.

To the caller it is one command as ever: its own reply, its own error. A connection that fails fails what was sent on it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

import hiredis
import redis.asyncio
from redis.exceptions import ResponseError

from quaestor.redis.clients import SharedClient, spans_servers

_MOST: Final = 32
"""Commands of one round trip: who is behind a large reply waits for it."""

_Waiting = list[tuple[tuple[Any, ...], asyncio.Future[Any]]]


class CommandPipeline:
    """Commands to one server, or to a cluster, where each goes alone. Use from one event loop at a time."""

    def __init__(self, client: SharedClient) -> None:
        self._spans_servers = spans_servers(client)
        self._open: _Waiting = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def execute(self, client: SharedClient, *command: Any) -> Any:
        """The reply to a command. Raises RedisError, OSError. Who is cancelled before it was sent has not sent it.

        client: the one that this was made for.
        """
        if self._spans_servers:
            return await client.execute_command(*command)
        loop = asyncio.get_running_loop()
        if not self._open or len(self._open) >= _MOST or self._loop is not loop:
            self._open, self._loop = [], loop
            task = loop.create_task(self._send(client, self._open))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        reply = loop.create_future()
        self._open.append((command, reply))
        return await reply

    async def _send(self, client: SharedClient, batch: _Waiting) -> None:
        """Send what has come until now; each of those who wait is given a reply, or the error."""
        if self._open is batch:
            self._open = []
        batch = [(command, reply) for command, reply in batch if not reply.done()]
        try:
            answers = await _exchange(client, [command for command, _ in batch]) if batch else []
        except BaseException as error:
            for _, reply in batch:
                if reply.done():
                    continue
                if isinstance(error, Exception):
                    reply.set_exception(error)
                else:
                    reply.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for (_, reply), answer in zip(batch, answers, strict=True):
            if reply.done():
                continue
            if isinstance(answer, ResponseError):
                reply.set_exception(answer)
            else:
                reply.set_result(answer)


async def _exchange(client: SharedClient, commands: list[tuple[Any, ...]]) -> list[Any]:
    """The replies to these, or the server's errors in their place.

    On a connection of the driver's, because its own pipeline puts the commands, with what they hold, into the texts of errors
    and packs them in Python.
    """
    assert isinstance(client, redis.asyncio.Redis)
    pool = client.connection_pool
    connection = await pool.get_connection()  # type: ignore[no-untyped-call]
    answers: list[Any] = []
    try:
        await connection.send_packed_command([hiredis.pack_command(command) for command in commands])
        for _ in commands:
            try:
                answers.append(await connection.read_response())
            except ResponseError as error:
                answers.append(error)
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    finally:
        await pool.release(connection)
    return answers


_pipelines: WeakKeyDictionary[SharedClient, CommandPipeline] = WeakKeyDictionary()


def pipeline_of(client: SharedClient) -> CommandPipeline:
    """The pipeline of a client, the same for everybody who uses that."""
    pipeline = _pipelines.get(client)
    if pipeline is None:
        pipeline = _pipelines[client] = CommandPipeline(client)
    return pipeline
