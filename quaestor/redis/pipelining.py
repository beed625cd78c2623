"""Commands to the shared Redis, with those of several requests in one round trip.

Commands of one turn of the event loop are sent together on one connection, and their replies are read together. A caller
sees a single command with its own reply and its own error. A failed connection fails all commands sent on it.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

import redis.asyncio

from quaestor.redis.clients import SharedClient
from quaestor.redis.round_trips import RoundTrips


class CommandPipeline:
    """Commands to one server, or to a cluster, where each goes alone. Use from one thread at a time.

    Each event loop has connections of its own, because streams belong to the loop that opened them.
    """

    def __init__(self, client: SharedClient) -> None:
        self._pool = client.connection_pool if isinstance(client, redis.asyncio.Redis) else None
        self._by_loop: dict[asyncio.AbstractEventLoop, RoundTrips] = {}
        self._latest: RoundTrips | None = None

    async def execute(self, client: SharedClient, *command: Any) -> Any:
        """Return the reply to a command that does not block. Raises RedisError, OSError. A caller cancelled early sends nothing.

        client: the client of this pipeline.
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
    """Return the pipeline of a client, the same for all its users."""
    pipeline = _pipelines.get(client)
    if pipeline is None:
        pipeline = _pipelines[client] = CommandPipeline(client)
    return pipeline
