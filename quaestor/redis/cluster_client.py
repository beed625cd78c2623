"""An asynchronous client to a cluster that many tasks share: the driver's, on the connection pools that one server gets.

The driver knows the topology, which keys a command names and whom to ask. Of its own connections to a cluster's servers there are
either too many or too few (it raises, and does not wait), and when one of them fails it closes others that are in use;
so what is sent goes through a pool for each server, which makes callers wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AskError, ClusterDownError, ClusterError, MovedError, RedisClusterException, TryAgainError

from quaestor.redis.address import ClusterAddress

_REDIRECTS: Final = 8
_PAUSE_S: Final = 0.02
_AFTER_A_MOVE: Final = 1
"""A request whose server has gone is sent once more, to whoever has its slot then."""


class SharedCluster(RedisCluster):
    """pool: of the pool for each server. Use from one event loop. Connects on first use."""

    def __init__(self, address: ClusterAddress, pool: Mapping[str, Any]) -> None:
        self._pool = {"retry": Retry(NoBackoff(), 0)} | dict(pool) | address.options
        self._kind = redis.asyncio.SSLConnection if address.tls else redis.asyncio.Connection
        self._clients: dict[str, redis.asyncio.Redis] = {}
        super().__init__(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            ssl=address.tls,
            require_full_coverage=False,
            retry=Retry(NoBackoff(), _AFTER_A_MOVE),
            **{name: value for name, value in self._pool.items() if name not in ("retry", "timeout")},
        )

    def _client_of(self, node: ClusterNode) -> redis.asyncio.Redis:
        client = self._clients.get(node.name)
        if client is None:
            pool = redis.asyncio.BlockingConnectionPool(
                connection_class=self._kind, host=node.host, port=node.port, **self._pool
            )
            self._clients[node.name] = client = redis.asyncio.Redis.from_pool(pool)
        return client

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """As the driver's, but for at most twice the time that one server has."""
        try:
            async with asyncio.timeout(2 * self._pool["socket_timeout"]):
                return await super().execute_command(*args, **kwargs)
        except TimeoutError as error:
            raise redis.TimeoutError("the Redis Cluster did not answer in time") from error
        except RedisClusterException as error:  # which is no RedisError
            raise redis.ConnectionError(f"the Redis Cluster cannot be asked: {error}") from error

    async def _execute_command(self, target_node: ClusterNode, *args: Any, **kwargs: Any) -> Any:
        """The driver's own, which has chosen the server, sends the command and follows the cluster's answers; so does this."""
        node, asking = target_node, False
        for _ in range(_REDIRECTS):
            try:
                return await self._send(node, asking, args, kwargs)
            except MovedError as told:
                await self.nodes_manager.move_slot(told)
                self._initialize = True
                node, asking = self.nodes_manager.get_node_from_slot(told.slot_id), False
            except AskError as told:
                known = self.get_node(host=told.host or node.host, port=told.port)
                node, asking = known or ClusterNode(told.host, told.port), True
            except TryAgainError:
                await asyncio.sleep(_PAUSE_S)
            except (redis.ConnectionError, redis.TimeoutError, ClusterDownError):
                self._initialize = True  # somebody else may have its slots by now
                raise
        raise ClusterError(f"{args[0]} was sent on {_REDIRECTS} times; the cluster's servers do not agree")

    async def _send(self, node: ClusterNode, asking: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        client = self._client_of(node)
        if not asking:
            return await client.execute_command(*args, **kwargs)  # type: ignore[no-untyped-call]
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("ASKING")
            pipeline.execute_command(*args, **kwargs)
            return (await pipeline.execute())[1]

    async def aclose(self) -> None:
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()
        await super().aclose()
