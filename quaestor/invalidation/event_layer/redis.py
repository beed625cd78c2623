"""The event layer on Redis or Valkey (6.2 or later): one stream a pipeline, shared by every process of a deployment.

Connections are used directly, one request of several commands per call: that is one round trip and a third of the
time that the client's own pipeline object takes.

**Noticing that data are gone.** Whoever reads on after an offset trusts that nothing before it was lost. Three checks:

- A key names this life of the data (`streams.epoch`). Every call reads it along; every offset carries it. It is gone
  after a flush or a restart without persistence, and then every offset of the life before is refused for ever, also
  one that was kept in a checkpoint and is presented by another process.
- A server that lost only its last moments (a crash between two fsyncs, a fail-over to a replica that lagged) still has
  the key. So each new connection, before it is used for anything, looks up the newest entry that this object has
  appended or read in each stream; if one is missing that nobody can have trimmed, the life is ended by renewing the key.
- A server that evicts keys without a time-to-live when memory runs out is refused.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from quaestor.errors import ConfigurationError, EventLayerError, EventLayerResetError
from quaestor.invalidation.event_layer import offsets, streams
from quaestor.ports import PipelineSize, StreamEntry

_FIELD = b"p"
_ANSWER_TIMEOUT_S = 5.0
_LONGEST_BLOCK_MS = 2_000
"""A blocked read must end well before the answer counts as overdue."""

_Connection = Any
"""redis.connection.ConnectionInterface; most of its methods carry no types."""
_Command = tuple[Any, ...]
_Position = tuple[int, int]


class RedisEventLayer:
    """See ports.EventLayer. One server (or a Sentinel-managed primary behind one address), not Redis Cluster.

    Safe to use from several threads: each call takes a connection of its own; idle ones are kept. Offsets count the
    server's milliseconds, so `offset_at` and `trim` expect the caller's clock to agree with the server's.
    Calls are not repeated on failure; the caller decides. A failed append may have been performed.

    That the data were lost is told to every reader that goes on from an old offset, but to writers once: to the first
    call of this object that finds out. A writer that must know (ingest) has an object of its own.
    """

    immediate = False

    def __init__(self, url: str, deployment: str) -> None:
        """Connects on first use. Raises ConfigurationError if the URL is not a Redis URL."""
        self._deployment = deployment
        self._epoch_key = streams.epoch(deployment)
        try:
            self._factory = redis.ConnectionPool.from_url(
                url, protocol=2, decode_responses=False, socket_timeout=_ANSWER_TIMEOUT_S, socket_connect_timeout=2.0,
                socket_keepalive=True, health_check_interval=0,
            )  # fmt: skip
        except ValueError as error:
            scheme = url.partition("://")[0]  # what follows may hold a password
            raise ConfigurationError(f"redis_url ({scheme}://...) is not a Redis URL: {error}") from error
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._epoch: str | None = None
        self._seen: dict[str, _Position] = {}
        self._closed = False

    # Pipelines

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        if not payloads:
            return
        adds = [("XADD", stream, "*", _FIELD, payload) for payload in payloads]
        ids = self._call(*adds) if len(adds) == 1 else self._call(("MULTI",), *adds, ("EXEC",))[-1]
        for entry_id in ids:
            if isinstance(entry_id, Exception):
                raise EventLayerError(f"{stream} did not take an entry: {entry_id}") from entry_id
        self._note(stream, _position(ids[-1]))

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        names = list(offsets)
        ids = [self._entry_id(offsets[name]) for name in names]
        block = ("BLOCK", min(block_ms, _LONGEST_BLOCK_MS)) if block_ms > 0 else ()
        (reply,) = self._call(("XREAD", "COUNT", count, *block, "STREAMS", *names, *ids))
        found: list[StreamEntry] = []
        epoch = self._current_epoch()
        for stream_name, entries in reply or ():
            stream = stream_name.decode()
            found += [StreamEntry(stream, _offset(entry_id, epoch), fields[1]) for entry_id, fields in entries]
            if entries:
                self._note(stream, _position(entries[-1][0]))
        return found

    def offset_at(self, stream: str, at_ms: int) -> str:
        return offsets.just_before(at_ms, self._current_epoch())

    def first_offset(self, stream: str) -> str | None:
        (reply,) = self._call(("XRANGE", stream, "-", "+", "COUNT", 1))
        return _offset(reply[0][0], self._current_epoch()) if reply else None

    def trim(self, stream: str, *, before_ms: int) -> None:
        self._call(("XTRIM", stream, "MINID", "=", max(before_ms, 0)))

    def measure(self, stream: str) -> PipelineSize:
        entries, size = self._call(("XLEN", stream), ("MEMORY", "USAGE", stream))
        return PipelineSize(int(entries), int(size or 0))

    # Values

    def put(self, name: str, value: bytes) -> None:
        self._call(("SET", name, value))

    def get(self, name: str) -> bytes | None:
        (value,) = self._call(("GET", name))
        return None if value is None else bytes(value)

    def close(self) -> None:
        """Ends idle connections; every later call raises EventLayerError."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()

    # The current life of the data

    def _current_epoch(self) -> str:
        if self._epoch is None:
            self._call()
        assert self._epoch is not None
        return self._epoch

    def _entry_id(self, offset: str) -> str:
        epoch = offsets.epoch_of(offset)
        if epoch is not None and epoch != self._current_epoch():
            raise EventLayerResetError(
                f"offset {offset} is from before the data of deployment {self._deployment!r} were lost; start over"
            )
        at_ms, sequence = offsets.position(offset)
        return f"{at_ms}-{sequence}"

    def _note(self, stream: str, position: _Position) -> None:
        with self._lock:
            if self._seen.get(stream, (0, 0)) < position:
                self._seen[stream] = position

    def _adopt(self, epoch: str, why: str) -> EventLayerResetError:
        with self._lock:
            self._epoch = epoch
            self._seen.clear()
        return EventLayerResetError(f"the event layer of deployment {self._deployment!r} lost its data: {why}")

    # Requests

    def _call(self, *commands: _Command) -> list[Any]:
        """Replies to all commands, from one round trip. Raises if any failed, or if the data were lost before."""
        with self._connection() as connection:
            replies = _exchange(connection, (("GET", self._epoch_key), *commands))
            epoch = replies[0]
            if epoch is None or epoch.decode() != self._epoch:
                raise self._adopt(self._establish_epoch(connection), "its epoch is gone or another one")
        for reply in replies:
            if isinstance(reply, Exception):
                raise EventLayerError(f"Redis refused a request: {reply}") from reply
        return replies[1:]

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        with self._lock:
            if self._closed:
                raise EventLayerError("the Redis event layer was closed; make a new one", retryable=False)
            connection: _Connection = self._idle.pop() if self._idle else None
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

    def _verify(self, connection: _Connection) -> None:
        """Before a new connection is used: is everything still there that this object has seen?"""
        epoch = self._establish_epoch(connection)
        if self._epoch is None:
            _require_no_eviction(connection)
            with self._lock:
                self._epoch = self._epoch or epoch
        if epoch != self._epoch:
            raise self._adopt(epoch, "the server came back with another epoch")
        with self._lock:
            seen = list(self._seen.items())
        for stream, position in seen:
            if _lost(connection, stream, position):
                renewed = uuid.uuid4().hex
                _require(_exchange(connection, (("SET", self._epoch_key, renewed),)))
                raise self._adopt(renewed, f"the end of {stream} is missing")

    def _establish_epoch(self, connection: _Connection) -> str:
        key = self._epoch_key
        replies = _require(_exchange(connection, (("SET", key, uuid.uuid4().hex, "NX"), ("GET", key))))
        return str(replies[1].decode())


def _exchange(connection: _Connection, commands: Sequence[_Command]) -> list[Any]:
    """One request, all replies; refusals are returned as exceptions in their place."""
    connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except redis.ResponseError as refusal:
            replies.append(refusal)
    return replies


def _require(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise EventLayerError(f"Redis refused a request: {reply}") from reply
    return replies


def _position(entry_id: bytes) -> _Position:
    at_ms, _, sequence = entry_id.partition(b"-")
    return int(at_ms), int(sequence)


def _offset(entry_id: bytes, epoch: str) -> str:
    at_ms, _, sequence = entry_id.decode().partition("-")
    return offsets.of_digits(at_ms, sequence, epoch)


def _lost(connection: _Connection, stream: str, seen: _Position) -> bool:
    """Whether the entry is missing for another reason than trimming, which only takes entries off the front."""
    entry_id = f"{seen[0]}-{seen[1]}"
    entry, first, newest, exists = _exchange(
        connection,
        (
            ("XRANGE", stream, entry_id, entry_id),
            ("XRANGE", stream, "-", "+", "COUNT", 1),
            ("XINFO", "STREAM", stream),
            ("EXISTS", stream),
        ),
    )
    if exists == 0:
        return True
    _require([entry, first, newest])
    if entry:
        return False
    facts = dict(zip(newest[::2], newest[1::2], strict=True))
    return _position(facts[b"last-generated-id"]) < seen or bool(first and _position(first[0][0]) < seen)


def _require_no_eviction(connection: _Connection) -> None:
    (reply,) = _exchange(connection, (("INFO", "memory"),))
    if isinstance(reply, Exception):
        return  # some hosted servers hide it
    facts = dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
    if facts.get("maxmemory", "0") != "0" and facts.get("maxmemory_policy", "").startswith("allkeys"):
        raise ConfigurationError(
            f"this Redis evicts any key when memory runs out (maxmemory-policy {facts['maxmemory_policy']}), streams too; "
            "set maxmemory-policy to noeviction or volatile-lru"
        )
