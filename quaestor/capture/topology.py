"""Servers of captured clients, as heartbeats report them: which is the primary, and which cluster each belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pymongo.hello import Hello
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)

from quaestor.capture.context import current
from quaestor.capture.listener_failures import ListenerFailures

Address = Any
"""(host, port), as the driver gives it."""


@dataclass(frozen=True, slots=True)
class _Server:
    """One server.

    writable: it is a primary, or a mongos.
    names: its address and those of its replica set, in the members' own spelling; None for a mongos, which does not
        report them.
    """

    writable: bool
    names: frozenset[Address] | None


class Topology:
    """Servers by address. Filled by heartbeats, which precede the first command to an address. Thread-safe."""

    def __init__(self) -> None:
        self._servers: dict[Address, _Server] = {}
        self._watched: frozenset[Address] | None = None
        self._distrusted: frozenset[Address] = frozenset()

    def heartbeat_succeeded(self, address: Address, hello: Hello[dict[str, Any]]) -> None:
        """Note the answer of a server."""
        self._servers[address] = _Server(bool(hello.is_writable), _names(address, hello))

    def heartbeat_failed(self, address: Address) -> None:
        """Note that a server did not answer: its role is unknown from now on."""
        self._servers.pop(address, None)

    def watch(self, address: Address, hello: Hello[dict[str, Any]]) -> None:
        """Note that this server belongs to the watched cluster."""
        names = _names(address, hello)
        if names is not None:
            self._watched = (self._watched or frozenset()) | names

    def distrust(self, addresses: Iterable[Address]) -> None:
        """Note that these seem to belong to another cluster than the watched one, before they have answered."""
        self._distrusted |= frozenset(addresses)

    def is_primary(self, address: Address) -> bool:
        """Whether the last heartbeat from there came from a primary."""
        server = self._servers.get(address)
        return server is not None and server.writable

    def is_in_another_cluster(self, address: Address) -> bool:
        """Whether this server certainly belongs to another cluster than the watched one, or is distrusted and has not
        answered."""
        server = self._servers.get(address)
        names = None if server is None else server.names
        if names is None or self._watched is None:
            return not self._distrusted.isdisjoint((names or frozenset()) | {address})
        return names.isdisjoint(self._watched)


class Watcher(CommandListener, ServerHeartbeatListener):
    """Listener of the client that watches the writes: it reports the watched cluster to the topology. Its commands do not belong
    to requests, even while a request is recorded."""

    def __init__(self, topology: Topology, failures: ListenerFailures) -> None:
        self._topology = topology
        self._failures = failures

    def started(self, event: CommandStartedEvent | ServerHeartbeatStartedEvent) -> None:
        """See pymongo.monitoring. Never raises."""
        try:
            if isinstance(event, CommandStartedEvent) and (recorder := current()) is not None:
                recorder.claim(event)
        except Exception as error:  # the command stays unclaimed, so its request is not cached
            self._failures.note(error)

    def succeeded(self, event: CommandSucceededEvent | ServerHeartbeatSucceededEvent) -> None:
        """See pymongo.monitoring. Never raises."""
        try:
            if isinstance(event, ServerHeartbeatSucceededEvent):
                self._topology.watch(event.connection_id, event.reply)
        except Exception as error:  # the next heartbeat says it again
            self._failures.note(error)

    def failed(self, event: CommandFailedEvent | ServerHeartbeatFailedEvent) -> None:
        """See pymongo.monitoring."""


def _names(address: Address, hello: Hello[dict[str, Any]]) -> frozenset[Address] | None:
    if hello.document.get("msg") == "isdbgrid":
        return None
    return frozenset(hello.all_hosts | {address})
