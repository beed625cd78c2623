"""Servers that captured clients talk to, as heartbeats report them: which is the primary, and of which cluster."""

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

Address = Any
"""(host, port), as the driver gives it."""


@dataclass(frozen=True, slots=True)
class _Server:
    """One server.

    writable: it is a primary, or a mongos.
    names: its address and those of its replica set, as the members call themselves; None for a mongos, which does not
    say.
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
        """Note how a server answered."""
        self._servers[address] = _Server(bool(hello.is_writable), _names(address, hello))

    def heartbeat_failed(self, address: Address) -> None:
        """Note that a server did not answer: what it was is not known any more."""
        self._servers.pop(address, None)

    def watch(self, address: Address, hello: Hello[dict[str, Any]]) -> None:
        """Note that this server belongs to the cluster whose writes are watched."""
        names = _names(address, hello)
        if names is not None:
            self._watched = (self._watched or frozenset()) | names

    def distrust(self, addresses: Iterable[Address]) -> None:
        """Note that these belong to another cluster than the one watched, as far as is known without having asked them."""
        self._distrusted |= frozenset(addresses)

    def is_primary(self, address: Address) -> bool:
        """Whether the last heartbeat from there came from a primary."""
        server = self._servers.get(address)
        return server is not None and server.writable

    def is_in_another_cluster(self, address: Address) -> bool:
        """Whether this server certainly belongs to another cluster than the one watched, or is distrusted and has not told."""
        server = self._servers.get(address)
        names = None if server is None else server.names
        if names is None or self._watched is None:
            return not self._distrusted.isdisjoint((names or frozenset()) | {address})
        return names.isdisjoint(self._watched)


class Watcher(CommandListener, ServerHeartbeatListener):
    """Listener of the client that watches the writes: tells the topology which cluster that is. Its commands are no business of
    requests, also while one is recorded."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def started(self, event: CommandStartedEvent | ServerHeartbeatStartedEvent) -> None:
        """See pymongo.monitoring."""
        if isinstance(event, CommandStartedEvent):
            recorder = current()
            if recorder is not None:
                recorder.claim(event)

    def succeeded(self, event: CommandSucceededEvent | ServerHeartbeatSucceededEvent) -> None:
        """See pymongo.monitoring."""
        if isinstance(event, ServerHeartbeatSucceededEvent):
            self._topology.watch(event.connection_id, event.reply)

    def failed(self, event: CommandFailedEvent | ServerHeartbeatFailedEvent) -> None:
        """See pymongo.monitoring."""


def _names(address: Address, hello: Hello[dict[str, Any]]) -> frozenset[Address] | None:
    if hello.document.get("msg") == "isdbgrid":
        return None
    return frozenset(hello.all_hosts | {address})
