"""The event layer on Redis or Valkey (6.2 or later): one stream a pipeline, shared by every process of a deployment.

Connections are used directly, one request of several commands per call: that is one round trip and a third of the
time that the client's own pipeline object takes.

**Noticing that data are gone.** Whoever reads on after an offset trusts that nothing before it was lost. Three checks:

- A key names the data epoch (`streams.epoch`). Every call reads it along, behind its own commands; every offset carries it. It
  is gone after a flush or a restart without persistence, and then every offset of the epoch before is refused for ever, also
  one that was kept in a checkpoint and is presented by another process.
- A server that lost only its last moments (a crash between two fsyncs, a fail-over to a replica that lagged) still has
  the key. So each new connection, before it is used for anything, looks up the newest entry that this object has
  appended or read in each stream; if one is missing that nobody can have trimmed, the epoch is ended by renewing the key.
- A server that evicts keys without a time-to-live when memory runs out is refused, and so is a node of a cluster: see cluster.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis

from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.event_layer.redis_requests import (
    LONGEST_BLOCK_MS,
    OPTIONS,
    Command,
    Connection,
    Position,
    exchange,
    is_lost,
    offset,
    position,
    presence_of,
    require,
    require_no_eviction,
    require_one_server,
)
from quaestor.ports import StreamEntry
from quaestor.redis import clients


class RedisEventLayer(RedisPipelines):
    """The event layer on one server (or a Sentinel-managed primary behind one address), not Redis Cluster.

    `event_layer()` chooses.

    Each call takes a connection of its own; idle ones are kept.

    That the data were lost is told to every reader that goes on from an old offset, but to writers once: to the first
    call of this object that finds out. A writer that must know (ingest) has an object of its own.
    """

    def __init__(self, url: str, deployment: str) -> None:
        """Connects on first use. Raises ConfigurationError if the URL is not a Redis URL."""
        super().__init__(deployment)
        self._epoch_key = streams.epoch(deployment)
        self._factory = clients.connection_pool(url, **OPTIONS)
        self._idle: list[Connection] = []
        self._epoch: str | None = None
        self._seen: dict[str, Position] = {}

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        names = list(offsets)
        ids = [self.entry_id(offsets[name]) for name in names]
        block = ("BLOCK", min(block_ms, LONGEST_BLOCK_MS)) if block_ms > 0 else ()
        (reply,) = self.request("", ("XREAD", "COUNT", count, *block, "STREAMS", *names, *ids))
        found: list[StreamEntry] = []
        epoch = self.epoch()
        for stream_name, entries in reply or ():
            stream = stream_name.decode()
            found += [StreamEntry(stream, offset(entry_id, epoch), fields[1]) for entry_id, fields in entries]
            if entries:
                self._note(stream, position(entries[-1][0]))
        return found

    def close(self) -> None:
        """Ends idle connections; every later call raises EventLayerError."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()

    def reopen(self) -> None:
        """See ports.EventLayer."""
        with self._lock:
            self._closed = False

    # The current data epoch

    def epoch(self) -> str:
        if self._epoch is None:
            self.request("")
        assert self._epoch is not None
        return self._epoch

    def _together(self, names: Iterable[str]) -> list[list[str]]:
        return [list(names)]

    def _note(self, stream: str, position: Position) -> None:
        with self._lock:
            if self._seen.get(stream, (0, 0)) < position:
                self._seen[stream] = position

    def _adopt(self, epoch: str, why: str) -> EventLayerResetError:
        with self._lock:
            self._epoch = epoch
            self._seen.clear()
        return EventLayerResetError(f"the event layer of deployment {self._deployment!r} lost its data: {why}")

    # Requests

    def request(self, name: str, *commands: Command) -> list[Any]:
        with self._connection() as connection:
            # The epoch last: it speaks for what the commands found, and a read that waits is woken once.
            *replies, epoch = exchange(connection, (*commands, ("GET", self._epoch_key)))
            if epoch is None or epoch.decode() != self._epoch:
                raise self._adopt(self._establish_epoch(connection), "its epoch is gone or another one")
        return require(replies)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with self._lock:
            self._require_open()
            connection: Connection = self._idle.pop() if self._idle else None
        usable = False
        try:
            if connection is None:
                connection = self._factory.make_connection()
                connection.connect()
                self._verify(connection)
            yield connection
            usable = True
        except EventLayerResetError:
            usable = True
            raise
        except (redis.RedisError, OSError) as error:
            self._drop_idle()  # they lead to the same server
            raise EventLayerError(f"Redis did not answer: {error}") from error
        finally:
            with self._lock:
                keep = usable and not self._closed
                if keep and connection is not None:
                    self._idle.append(connection)
            if not keep and connection is not None:
                connection.disconnect()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()

    def _verify(self, connection: Connection) -> None:
        """Before a new connection is used: is everything still there that this object has seen?"""
        new = self._epoch is None
        if new:
            memory, cluster = exchange(connection, (("INFO", "memory"), ("INFO", "cluster")))
            require_one_server(cluster)
            require_no_eviction(memory)
        epoch = self._establish_epoch(connection)
        if new:
            with self._lock:
                self._epoch = self._epoch or epoch
        if epoch != self._epoch:
            raise self._adopt(epoch, "the server came back with another epoch")
        with self._lock:
            seen = list(self._seen.items())
        for stream, newest in seen:
            if is_lost(exchange(connection, presence_of(stream, newest)), newest):
                renewed = uuid.uuid4().hex
                require(exchange(connection, (("SET", self._epoch_key, renewed),)))
                raise self._adopt(renewed, f"the end of {stream} is missing")

    def _establish_epoch(self, connection: Connection) -> str:
        key = self._epoch_key
        replies = require(exchange(connection, (("SET", key, uuid.uuid4().hex, "NX"), ("GET", key))))
        return str(replies[1].decode())
