"""Event layer on Redis or Valkey (6.2 or later): one stream a pipeline, shared by every process of a deployment.

Connections are used directly, with one request of several commands per call. A call is then one round trip, and takes a
third of the time of the client's own pipeline object.

**Detection of lost data.** A reader that continues behind an offset trusts that nothing before it was lost. Three checks:

- A key names the data epoch (`streams.epoch`). Every call reads it along, behind its own commands; every offset carries it.
The key
  is gone after a flush or a restart without persistence. Every offset of the former epoch is then refused for ever, even an
  offset from a checkpoint that another process presents.
- A server that lost only its last moments (a crash between two fsyncs, a fail-over to a replica that lagged) still has the
key. Each
  new connection therefore starts with a check: for each stream, it looks up the newest entry that this object has appended
  or read. If an entry is missing that cannot have been trimmed, a new key ends the epoch.
- A server that evicts keys without a time-to-live when memory runs out is refused. A node of a cluster is refused too: see
cluster.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.redis_pipelines import RedisPipelines, adds_of
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
    """Event layer on one server (or a Sentinel-managed primary behind one address), not on a Redis Cluster.

    `event_layer()` chooses.

    Each call takes a connection of its own; idle ones are kept.

    A loss of data is reported to every reader that continues from an old offset. Writers get one report: the first call of
    this object that detects the loss. A writer that must know of it (ingest) has an object of its own.
    """

    def __init__(self, url: str, deployment: str) -> None:
        """Connects on first use. Raises ConfigurationError if the URL is not a Redis URL."""
        super().__init__(deployment)
        self._epoch_key = streams.epoch(deployment)
        self._factory = clients.connection_pool(url, **OPTIONS)
        self._idle: list[Connection] = []
        self._epoch: str | None = None
        self._seen: dict[str, Position] = {}

    def append_and_get(self, stream: str, payloads: Sequence[bytes], name: str) -> bytes | None:
        """See ports.ReadingAppends."""
        if not payloads:
            return self.get(name)
        (value,) = self._add(stream, adds_of(stream, payloads), ("GET", name))
        return None if value is None else bytes(value)

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        epoch = self.epoch()
        names = list(offsets)
        ids = [self.entry_id(offsets[name]) for name in names]
        block = ("BLOCK", min(block_ms, LONGEST_BLOCK_MS)) if block_ms > 0 else ()
        (reply,) = self.request("", ("XREAD", "COUNT", count, *block, "STREAMS", *names, *ids))
        self._require_epoch(epoch)
        read: list[StreamEntry] = []
        for stream_name, entries in reply or ():
            stream = stream_name.decode()
            read += [StreamEntry(stream, offset(entry_id, epoch), fields[1]) for entry_id, fields in entries]
            if entries:
                self._note(stream, position(entries[-1][0]))
        return read

    def close(self) -> None:
        """End idle connections; every later call raises EventLayerError."""
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
            # The epoch comes last: it vouches for the results of the commands, and wakes a waiting read only once.
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
            self._drop_idle()  # the idle connections lead to the same server
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
        """Check, before a new connection is used, that everything this object has seen still exists."""
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
