"""Asynchronous client to a cluster, shared by many tasks: the driver's client, on the connection pools of single servers.

The driver knows the topology, and the keys of a command. Its own connections to a cluster's servers are either too many or
too few (it raises, and does not wait). When one of them fails, it closes others in use. A command with keys therefore goes
through a pool for each server, which makes callers wait. The driver itself sends commands for whole servers (INFO, SCAN).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AskError, ClusterError, MovedError, RedisClusterException, TryAgainError

from quaestor.redis.address import ClusterAddress

_REDIRECTS: Final = 8
_PAUSE_S: Final = 0.02
_AFTER_A_MOVE: Final = 1
"""Further attempts of a request whose server has gone, at the new server of its slot."""
_WITH_COUNTED_KEYS: Final = frozenset({"EVAL", "EVALSHA"})
"""Commands whose keys the driver would ask the server for."""


class ServerClients:
    """Clients with a pool of connections for each server of a cluster.

    options: options of the pools.
    """

    def __init__(self, address: ClusterAddress, options: Mapping[str, Any]) -> None:
        self._kind = redis.asyncio.SSLConnection if address.tls else redis.asyncio.Connection
        self._options = options
        self._clients: dict[str, redis.asyncio.Redis] = {}

    async def send(self, node: ClusterNode, asking: bool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the server's reply.

        asking: the command concerns a slot that is moving to this server.
        """
        client = self._client(node)
        if not asking:
            return await client.execute_command(*args, **kwargs)  # type: ignore[no-untyped-call]
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("ASKING")
            pipeline.execute_command(*args, **kwargs)
            return (await pipeline.execute())[1]

    def _client(self, node: ClusterNode) -> redis.asyncio.Redis:
        client = self._clients.get(node.name)
        if client is None:
            pool = redis.asyncio.BlockingConnectionPool(
                connection_class=self._kind, host=node.host, port=node.port, **self._options
            )
            self._clients[node.name] = client = redis.asyncio.Redis.from_pool(pool)
        return client

    async def aclose(self) -> None:
        """End all connections."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()


class SharedCluster(RedisCluster):
    """Client to a cluster for all tasks of one event loop. Connects on first use.

    pool: options of the pool for each server.
    """

    def __init__(self, address: ClusterAddress, pool: Mapping[str, Any]) -> None:
        options = {"retry": Retry(NoBackoff(), 0)} | dict(pool) | address.options
        self._servers = ServerClients(address, options)
        self._limit_s = 2 * options["socket_timeout"]
        self._topology_is_old = False
        super().__init__(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            ssl=address.tls,
            require_full_coverage=False,
            retry=Retry(NoBackoff(), _AFTER_A_MOVE),
            **{name: value for name, value in options.items() if name not in ("retry", "timeout")},
        )

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        """Return the reply to a command, within twice the time that one server has. Raises RedisError."""
        try:
            async with asyncio.timeout(self._limit_s):
                await self.initialize()
                keys = () if "target_nodes" in kwargs else await self._keys(args)
                if not keys:
                    return await super().execute_command(*args, **kwargs)
                return await self._execute(self.keyslot(keys[0]), args, kwargs)
        except TimeoutError as error:
            raise redis.TimeoutError("the Redis Cluster did not answer in time") from error
        except RedisClusterException as error:  # this error is no RedisError
            raise redis.ConnectionError(f"the Redis Cluster does not accept commands: {error}") from error

    async def _keys(self, args: Sequence[Any]) -> Sequence[Any]:
        command = str(args[0])
        if command in _WITH_COUNTED_KEYS:
            return args[3 : 3 + int(args[2])]
        if command in self.command_flags:
            return ()
        return await self.commands_parser.get_keys(*args) or ()

    async def _execute(self, slot: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        for left in reversed(range(1 + _AFTER_A_MOVE)):
            if self._topology_is_old:
                await self._look_again()
            try:
                return await self._redirected(slot, args, kwargs)
            except self.ERRORS_ALLOW_RETRY as error:
                self._topology_is_old = True  # another server may have its slots by now
                if not left or type(error) not in self.ERRORS_ALLOW_RETRY:
                    raise
        raise AssertionError

    async def _look_again(self) -> None:
        """Refresh the map of slots."""
        self._topology_is_old = False
        try:
            await self.nodes_manager.initialize()
        except BaseException:
            self._topology_is_old = True
            raise

    async def _redirected(self, slot: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Send the command to the slot's server by the map, and follow its redirects."""
        node, asking = self.nodes_manager.get_node_from_slot(slot), False
        for _ in range(_REDIRECTS):
            try:
                return await self._servers.send(node, asking, args, kwargs)
            except MovedError as redirection:
                await self.nodes_manager.move_slot(redirection)
                self._topology_is_old = True
                node, asking = self.nodes_manager.get_node_from_slot(redirection.slot_id), False
            except AskError as redirection:
                known = self.get_node(host=redirection.host or node.host, port=redirection.port)
                node, asking = known or ClusterNode(redirection.host, redirection.port), True
            except TryAgainError:
                await asyncio.sleep(_PAUSE_S)
        raise ClusterError(f"{args[0]} was redirected {_REDIRECTS} times; the cluster's servers do not agree")

    async def aclose(self) -> None:
        """End all connections; the next command would connect again."""
        await self._servers.aclose()
        await super().aclose()
