"""Captured clients: this process's pymongo clients with one capture as listener, found as they appear, wherever they are made.

pymongo does not name the client of an event to a listener. But it keeps a weak list of its open clients, by the ids of their
topologies, for when the process forks. That list is read on request, and at the first heartbeat to a server: before any command
is sent there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import pymongo
from bson import ObjectId
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError

from quaestor.capture.topology import Topology
from quaestor.errors import ConfigurationError

AnyClient = MongoClient[Any] | AsyncMongoClient[Any]


class CapturedClients:
    """Clients with one capture. The first client decides which cluster is watched; clients of other clusters are strangers.

    Thread-safe.

    topology: receives the servers of strangers.
    first: the arguments of the first client; None before it has appeared.
    """

    def __init__(self, capture: object, topology: Topology) -> None:
        self._capture = capture
        self._topology = topology
        self._on_heartbeat: Callable[[], None] | None = None
        self._known: set[ObjectId] = set()
        self._seeds: frozenset[str] = frozenset()
        self._strangers: list[str] = []
        self._lock = threading.Lock()
        self.first: Mapping[str, Any] | None = None

    def follow(self, on_heartbeat: Callable[[], None] | None) -> None:
        """Look for clients at heartbeats from now on, and call back when some have appeared.

        The callback runs in any thread, before the new clients can send a command. None: stop looking.
        """
        self._on_heartbeat = on_heartbeat

    def heartbeat(self) -> None:
        """Look for clients, if a follower is set. Never raises."""
        on_heartbeat = self._on_heartbeat
        if on_heartbeat is None:
            return
        try:
            if self.look():
                on_heartbeat()
        except ConfigurationError:
            on_heartbeat()  # the follower looks itself, and reports the error

    def look(self) -> bool:
        """Register clients that have appeared, in the order in which they were made. Returns whether there are any. O(clients).

        Raises ConfigurationError if this pymongo does not list its clients.
        """
        with self._lock:
            listed = dict(sorted(_carrying(self._capture)))
            new = listed.keys() - self._known
            for topology_id, client in listed.items():
                if topology_id in new:
                    self._notice(client)
            self._known = set(listed)
            return bool(new)

    def take_strangers(self) -> list[str]:
        """Return messages about the strangers that have appeared since the last call."""
        with self._lock:
            strangers, self._strangers = self._strangers, []
        return strangers

    def _notice(self, client: AnyClient) -> None:
        try:
            arguments = client._init_kwargs  # kept for duplicating the client; there is no public way
            seeds = _seeds(arguments)
        except (AttributeError, TypeError, ValueError, PyMongoError) as error:
            raise ConfigurationError(
                f"pymongo {pymongo.version} does not say how its client was configured ({type(error).__name__}): "
                "pass mongo_url=..."
            ) from error
        if self.first is None:
            self.first = arguments
            self._seeds = seeds
        elif seeds & self._seeds:
            # Compared by seeds, before any connection: a common host, or the same SRV name.
            self._seeds |= seeds
        else:
            self._topology.distrust(client.topology_description.server_descriptions())
            self._strangers.append(
                f"the capture is attached to clients of different clusters, {_shown(self._seeds)} and {_shown(seeds)}: reads "
                f"from {_shown(seeds)} are not cached unless its servers say that they are of the first one; use one Quaestor "
                "for each cluster, or pass mongo_url=... to say which one to watch"
            )


def _carrying(capture: object) -> Iterator[tuple[ObjectId, AnyClient]]:
    """Iterate over the open clients with this capture, synchronous or not, by the ids of their topologies, which grow."""
    for kind in (MongoClient, AsyncMongoClient):
        listed = getattr(kind, "_clients", None)
        if not isinstance(listed, WeakValueDictionary) or not hasattr(os, "register_at_fork"):
            raise ConfigurationError(
                f"pymongo {pymongo.version} does not list its clients on this platform, so the one that carries the capture "
                "cannot be found: pass mongo_url=..."
            )
        for reference in listed.valuerefs():
            client: AnyClient | None = reference()
            if client is not None and _carries(client, capture) and not getattr(client, "_closed", False):
                yield reference.key, client


def _carries(client: AnyClient, capture: object) -> bool:
    listeners: Sequence[object] = client.options.event_listeners
    return any(listener is capture for listener in listeners)


def _seeds(arguments: Mapping[str, Any]) -> frozenset[str]:
    host = arguments.get("host")
    entities = [host] if isinstance(host, str) or host is None else list(host)
    port = arguments.get("port") or MongoClient.PORT
    seeds: set[str] = set()
    for entity in entities:
        text = entity or MongoClient.HOST
        if text.startswith("mongodb+srv://"):
            seeds.add(text.split("://", 1)[1].rsplit("@", 1)[-1].split("/", 1)[0].split("?", 1)[0].lower())
        elif "://" in text:
            parsed = pymongo.uri_parser.parse_uri(text, default_port=port, validate=False, warn=False)
            seeds.update(f"{name}:{number}" for name, number in parsed["nodelist"])
        else:
            seeds.update(f"{name}:{number}" for name, number in pymongo.uri_parser.split_hosts(text, port))
    return frozenset(seeds)


def _shown(seeds: frozenset[str]) -> str:
    return ",".join(sorted(seeds))
