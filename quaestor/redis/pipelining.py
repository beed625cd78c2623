"""Commands to the shared Redis, those of several requests in one round trip: what is asked for in one turn of the event loop is
sent together, on one connection, and its replies are read together.

To the caller it is one command as ever: its own reply, its own error. A connection that fails fails what was sent on it.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

import redis.asyncio

from quaestor.redis.clients import SharedClient
from quaestor.redis.round_trips import RoundTrips


class CommandPipeline:
    """Commands to one server, or to a cluster, where each goes alone. Use from one thread at a time; each of its event loops has
    connections of its own, because streams belong to the loop that opened them."""

    def __init__(self, client: SharedClient) -> None:
        self._pool = client.connection_pool if isinstance(client, redis.asyncio.Redis) else None
        self._by_loop: dict[asyncio.AbstractEventLoop, RoundTrips] = {}
        self._latest: RoundTrips | None = None

    async def execute(self, client: SharedClient, *command: Any) -> Any:
        """The reply to a command that does not block. Raises RedisError, OSError. Who is cancelled before it was sent has not
        sent it.

        client: the one that this was made for.
        """
        if self._pool is None:
            return await client.execute_command(*command)
        trips = self._latest
        if trips is None or trips.loop is not asyncio.get_running_loop():
            trips = await self._in_this_loop(self._pool)
        return await trips.ask(command)

    async def _in_this_loop(self, pool: redis.asyncio.ConnectionPool) -> RoundTrips:
        loop = asyncio.get_running_loop()
        for over in [other for other in self._by_loop if other.is_closed()]:
            await self._by_loop.pop(over).forget()
        trips = self._by_loop.get(loop)
        if trips is None:
            trips = self._by_loop[loop] = RoundTrips(pool)
        self._latest = trips
        return trips


_pipelines: WeakKeyDictionary[SharedClient, CommandPipeline] = WeakKeyDictionary()


def pipeline_of(client: SharedClient) -> CommandPipeline:
    """The pipeline of a client, the same for everybody who uses that."""
    pipeline = _pipelines.get(client)
    if pipeline is None:
        pipeline = _pipelines[client] = CommandPipeline(client)
    return pipeline
