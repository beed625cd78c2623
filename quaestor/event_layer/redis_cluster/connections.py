"""Connections to the servers of a Redis Cluster, and the routing of a request to the server that has its keys.

The driver knows the topology: the server of each slot, and where to refresh that. Connections are used directly, as on one
server. A request goes to the server in the driver's map. MOVED corrects the map. ASK and TRYAGAIN (a slot is moving to
another server) make its commands go one by one, each to the server of its key.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisClusterException, TryAgainError

from quaestor.errors import EventLayerError
from quaestor.event_layer.redis_requests import OPTIONS, Command, Connection, exchange, facts_of, require_no_eviction
from quaestor.redis import clients
from quaestor.redis.address import ClusterAddress

_REDIRECTS: Final = 8
"""Redirects after which a request is given up."""
_PAUSE_S: Final = 0.02
_REFRESH_EVERY_S: Final = 0.1

Node = tuple[str, int]


@dataclass(slots=True)
class Link:
    """Connection to one server.

    history: identity of this server's data as of now; changes with a restart, and when another server takes over.
    """

    node: Node
    connection: Connection
    history: str


class ClusterConnections:
    """Connections of one event layer object to all servers of a cluster. Safe to use from several threads.

    Raises EventLayerError when a server or the whole cluster does not answer.
    """

    def __init__(self, address: ClusterAddress) -> None:
        """Connects on first use."""
        self._address = address
        self._options = dict(OPTIONS) | address.options
        self._lock = threading.Lock()
        self._topology: redis.RedisCluster | None = None
        self._refreshed_s = 0.0
        self._pools: dict[Node, redis.ConnectionPool] = {}
        self._idle: dict[Node, list[Link]] = {}
        self._closed = False

    def ask(self, slot: int, commands: Sequence[Command]) -> tuple[list[Any], str]:
        """Return the replies to commands whose keys all have this slot, and the history of the server.

        Refusals are returned in their place. A command that was carried out is never sent again.
        """
        with self.link(slot) as link:
            replies = exchange(link.connection, commands)
        if not any(map(_sends_on, replies)):
            return replies, link.history
        self.redirected(replies)
        start = 0
        for unit in _units(commands):
            end = start + len(unit)
            if any(map(_sends_on, replies[start:end])):
                replies[start:end] = self._wherever(slot, unit)
            start = end
        return replies, uuid.uuid4().hex

    def redirected(self, replies: Sequence[Any]) -> bool:
        """Whether a reply names another server for the slot; the map is then corrected.

        Raises EventLayerError if the cluster is down.
        """
        for reply in replies:
            if isinstance(reply, ClusterDownError):
                self._refresh()
                raise EventLayerError(f"the Redis Cluster is down: {reply}") from reply
            if isinstance(reply, MovedError):
                self._moved(reply)
                return True
        return False

    def _wherever(self, slot: int, commands: Sequence[Command]) -> list[Any]:
        redirected_to: Node | None = None
        for _ in range(_REDIRECTS):
            with self.link(slot, redirected_to) as link:
                replies = exchange(link.connection, commands if redirected_to is None else (("ASKING",), *commands))
            replies = replies if redirected_to is None else replies[1:]
            redirection = next((reply for reply in replies if type(reply) is AskError), None)
            if redirection is not None:
                redirected_to = redirection.host or link.node[0], redirection.port
            elif any(isinstance(reply, TryAgainError) for reply in replies):
                redirected_to = None
                time.sleep(_PAUSE_S)
            elif self.redirected(replies):
                redirected_to = None
            else:
                return replies
        raise EventLayerError(f"slot {slot} of the Redis Cluster is on its way to another server; try again")

    # Connections

    @contextmanager
    def link(self, slot: int, node: Node | None = None) -> Iterator[Link]:
        """Lend a connection to the server of this slot, or to a named server; it is kept for later calls."""
        link = self.take(slot, node)
        try:
            yield link
        except (redis.RedisError, OSError) as error:
            raise self.failed(link, error) from error
        except BaseException:
            link.connection.disconnect()
            raise
        self.give_back(link)

    def take(self, slot: int, node: Node | None = None) -> Link:
        """Take such a connection, to be given back or reported as failed."""
        node = node or self.node_of(slot)
        with self._lock:
            if self._closed:
                raise EventLayerError("the Redis event layer was closed; make a new one", retryable=False)
            if idle := self._idle.get(node):
                return idle.pop()
        connection: Connection = self._pool(node).make_connection()
        link = Link(node, connection, "")
        try:
            connection.connect()
            memory, server, replication = exchange(
                connection, (("INFO", "memory"), ("INFO", "server"), ("INFO", "replication"))
            )
        except (redis.RedisError, OSError) as error:
            raise self.failed(link, error) from error
        link.history = _history(server, replication)
        try:
            require_no_eviction(memory)
        except BaseException:
            connection.disconnect()
            raise
        return link

    def give_back(self, link: Link) -> None:
        """Keep a connection for later calls."""
        with self._lock:
            if not self._closed:
                self._idle.setdefault(link.node, []).append(link)
                return
        link.connection.disconnect()

    def failed(self, link: Link, error: Exception) -> EventLayerError:
        """Give up the connections to a server that does not answer; another server may have its slots by now."""
        link.connection.disconnect()
        self.forget(link.node)
        self._refresh()
        return EventLayerError(f"Redis at {link.node[0]}:{link.node[1]} did not answer: {error}")

    def forget(self, node: Node) -> None:
        """End the idle connections to this server."""
        with self._lock:
            idle = self._idle.pop(node, [])
        for link in idle:
            link.connection.disconnect()

    def survey(self, slot: int, commands: Sequence[Command]) -> tuple[list[Any], str]:
        """Send one request to the server that the map names for this slot, without following redirects.

        Returns the replies, and the server's history as of now. Connections with another history are ended.
        """
        with self.link(slot) as link:
            replies = exchange(link.connection, (("INFO", "server"), ("INFO", "replication"), *commands))
            known, link.history = link.history, _history(*replies[:2])
        if known != link.history:
            self.forget(link.node)
        return replies[2:], link.history

    def node_of(self, slot: int) -> Node:
        """Return the server of this slot, by the map."""
        nodes = self._map().nodes_manager.slots_cache.get(slot)
        if not nodes:
            self._refresh()
            raise EventLayerError(f"no server of the Redis Cluster has slot {slot}")
        return nodes[0].host, int(nodes[0].port)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = [link for links in self._idle.values() for link in links], {}
            topology, self._topology = self._topology, None
        for link in idle:
            link.connection.disconnect()
        if topology is not None:
            topology.close()

    def reopen(self) -> None:
        """Allow use again after close()."""
        with self._lock:
            self._closed = False

    # The map

    def _map(self) -> redis.RedisCluster:
        with self._lock:
            if self._topology is None:
                if self._closed:
                    raise EventLayerError("the Redis event layer was closed; make a new one", retryable=False)
                try:
                    self._topology = clients.cluster_client(self._address, **OPTIONS)
                except (redis.RedisError, OSError) as error:
                    raise EventLayerError(f"no server of the Redis Cluster answers: {error}") from error
            return self._topology

    def _moved(self, redirection: MovedError) -> None:
        if redirection.host:  # without a host the server does not know its own address
            self._map().nodes_manager.move_slot(redirection)
        self._refresh()

    def _refresh(self) -> None:
        """Refresh the map of slots, unless it was refreshed a moment ago."""
        with self._lock:
            topology, now_s = self._topology, time.monotonic()
            if topology is None or self._closed or now_s - self._refreshed_s < _REFRESH_EVERY_S:
                return
            self._refreshed_s = now_s
        with suppress(
            redis.RedisError, RedisClusterException, OSError, IndexError
        ):  # else the old map is all that there is
            topology.nodes_manager.initialize()

    def _pool(self, node: Node) -> redis.ConnectionPool:
        with self._lock:
            pool = self._pools.get(node)
            if pool is None:
                kind = redis.SSLConnection if self._address.tls else redis.Connection
                pool = redis.ConnectionPool(connection_class=kind, host=node[0], port=node[1], **self._options)
                self._pools[node] = pool
            return pool


def _sends_on(reply: Any) -> bool:
    """Whether a reply redirects the request to another server, or to a later moment; the command was then not carried out."""
    return isinstance(reply, AskError | TryAgainError | ClusterDownError)


def _units(commands: Sequence[Command]) -> Iterator[list[Command]]:
    """Yield the commands in units: a transaction is one unit, and so is every other command."""
    unit: list[Command] = []
    for command in commands:
        unit.append(command)
        if unit[0] != ("MULTI",) or command == ("EXEC",):
            yield unit
            unit = []


def _history(server: Any, replication: Any) -> str:
    """Return the identity of a server's data.

    Where INFO is refused it is unknown, so each connection gets an identity of its own.
    """
    run, stream = facts_of(server).get("run_id"), facts_of(replication).get("master_replid")
    return f"{run}:{stream}" if run and stream else uuid.uuid4().hex
