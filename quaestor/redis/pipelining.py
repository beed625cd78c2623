"""Commands to the shared Redis, those of several requests in one round trip: what is asked for in one turn of the event loop is
sent together, on one connection, and its replies are read together.

To the caller it is one command as ever: its own reply, its own error. A connection that fails fails what was sent on it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

import redis.asyncio
from redis.exceptions import ResponseError

from quaestor.redis.clients import SharedClient
from quaestor.redis.kept_connections import KeptConnections

_MOST: Final = 32
"""Commands of one round trip: who is behind a large reply waits for it."""

_Waiting = list[tuple[tuple[Any, ...], asyncio.Future[Any]]]


class CommandPipeline:
    """Commands to one server, or to a cluster, where each goes alone. Use from one event loop at a time."""

    def __init__(self, client: SharedClient) -> None:
        self._connections = KeptConnections(client) if isinstance(client, redis.asyncio.Redis) else None
        self._open: _Waiting = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def execute(self, client: SharedClient, *command: Any) -> Any:
        """The reply to a command. Raises RedisError, OSError. Who is cancelled before it was sent has not sent it.

        client: the one that this was made for.
        """
        if self._connections is None:
            return await client.execute_command(*command)
        loop = asyncio.get_running_loop()
        if not self._open or len(self._open) >= _MOST or self._loop is not loop:
            self._open, self._loop = [], loop
            task = loop.create_task(self._send(self._connections, self._open))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        reply = loop.create_future()
        self._open.append((command, reply))
        return await reply

    async def _send(self, connections: KeptConnections, batch: _Waiting) -> None:
        """Send what has come until now; each of those who wait is given a reply, or the error."""
        if self._open is batch:
            self._open = []
        batch = [(command, reply) for command, reply in batch if not reply.done()]
        try:
            answers = await connections.exchange([command for command, _ in batch]) if batch else []
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


_pipelines: WeakKeyDictionary[SharedClient, CommandPipeline] = WeakKeyDictionary()


def pipeline_of(client: SharedClient) -> CommandPipeline:
    """The pipeline of a client, the same for everybody who uses that."""
    pipeline = _pipelines.get(client)
    if pipeline is None:
        pipeline = _pipelines[client] = CommandPipeline(client)
    return pipeline
