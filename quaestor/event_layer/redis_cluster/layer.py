"""Event layer on a Redis Cluster or Valkey Cluster.

All data of one partition have one hash tag, so they lie on one server (streams.py). Three things differ from one server.
Requests find their server (connections.py). Data may be lost on one of the servers alone (data_epoch.py, seen_positions.py).
Pipelines of several servers are read in several requests (blocking_reads.py).

**Order between pipelines.** One server answers a read of several streams for one moment. On a cluster `read` keeps the part
of that order that its readers need. An entry is returned only together with all entries of the streams named *before* its
own that had been appended before it. That is free when the first stream has entries. Otherwise it costs a request to the
streams in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from quaestor.event_layer.redis_cluster import seen_positions
from quaestor.event_layer.redis_cluster.blocking_reads import Answer, BlockingReads, Group
from quaestor.event_layer.redis_cluster.connections import ClusterConnections
from quaestor.event_layer.redis_cluster.data_epoch import DataEpoch
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.event_layer.redis_requests import LONGEST_BLOCK_MS, Command, Position, offset, position, require
from quaestor.ports import StreamEntry
from quaestor.redis.address import cluster_address

_SEEN: Final = b"s"
"""Field of an entry: the positions that its writer had read, see seen_positions.py."""


class ClusterEventLayer(RedisPipelines):
    """Event layer of a deployment on a cluster.

    A loss on any server is a loss for all: see data_epoch.py. Losses are reported as on one server. If a server with data of
    the deployment is away, the deployment waits until a replica has taken over or the server is back.
    """

    def __init__(self, url: str, deployment: str, *, beside: Sequence[str] = ()) -> None:
        """Connects on first use.

        beside: further keys to watch: if the data with their hash tags are lost, so are this layer's data.

        Raises ConfigurationError if the URL is not that of a cluster.
        """
        super().__init__(deployment)
        self._servers = ClusterConnections(cluster_address(url))
        self._epoch = DataEpoch(self._servers, deployment)
        for name in beside:
            self._epoch.part_of(name)
        self._blocking_reads = BlockingReads(self._servers, self._epoch)
        self._reads_sent: dict[str, int] = {}
        self._last_received: dict[str, bytes] = {}

    # Pipelines

    def _add(self, stream: str, adds: Sequence[Command], *further: Command) -> list[Any]:
        """Append entries; the first one carries the positions read since they were last sent."""
        reads = self._epoch.reads
        if reads and self._reads_sent.get(stream) != reads and (positions := self._epoch.read_elsewhere(stream)):
            adds = [(*adds[0], _SEEN, seen_positions.encode(self.epoch(), positions)), *adds[1:]]
        replies = super()._add(stream, adds, *further)
        self._reads_sent[stream] = reads
        return replies

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        epoch = self.epoch()
        ids = {name: self.entry_id(offset) for name, offset in offsets.items()}
        parts = {name: self._epoch.part_of(name) for name in ids}
        groups = [
            Group(part, {name: ids[name] for name in ids if parts[name] is part})
            for part in {id(part): part for part in parts.values()}.values()
        ]
        entries: dict[str, list[StreamEntry]] = {}
        block_ms = min(block_ms, LONGEST_BLOCK_MS)
        below = len(groups)
        if below == 1:
            self._take(self._now(groups[0], count, *(("BLOCK", block_ms) if block_ms > 0 else ())), epoch, entries)
            below = 0
        elif block_ms > 0:
            self._require_open()
            for group in groups:
                self._epoch.prepare(group.part)
            woken = self._blocking_reads.wait(groups, count=count, wait_s=block_ms / 1000)
            below = max(woken, default=0)
            for answer in woken.values():
                self._take(answer, epoch, entries)
        for group in reversed(groups[:below]):  # the entries of one group existed before the next group is read
            self._sweep(group, epoch, entries, count)
        self._require_epoch(epoch)
        return [entry for name in ids for entry in entries.get(name, ())]

    def _sweep(self, group: Group, epoch: str, entries: dict[str, list[StreamEntry]], count: int) -> None:
        """Read the entries of a group behind those found, without waiting."""
        after = {
            name: self.entry_id(entries[name][-1].offset) if name in entries else at
            for name, at in group.after.items()
            if len(entries.get(name, ())) < count
        }
        if after:
            room = count - max(len(entries.get(name, ())) for name in after)
            self._take(self._now(Group(group.part, after), room), epoch, entries)

    def _now(self, group: Group, count: int, *block: Any) -> Answer:
        (reply,) = self.request(next(iter(group.after)), group.command(count, *block))
        return reply or []

    def _take(self, answer: Answer, epoch: str, by_stream: dict[str, list[StreamEntry]]) -> None:
        for stream_name, entries in answer:
            stream = stream_name.decode()
            taken = by_stream.setdefault(stream, [])
            for entry_id, fields in entries:
                taken.append(StreamEntry(stream, offset(entry_id, epoch), fields[1]))
                if len(fields) > 2:
                    self._receive(stream, fields[3], epoch)
            if entries:
                self._epoch.note(stream, position(entries[-1][0]), read_in=epoch)

    def _receive(self, stream: str, positions: bytes, epoch: str) -> None:
        if self._last_received.get(stream) != positions:
            self._last_received[stream] = positions
            self._epoch.note_reported(seen_positions.decode(positions, epoch))

    # Values

    def put(self, name: str, value: bytes) -> None:
        positions = seen_positions.encode(self.epoch(), self._epoch.seen())
        self.request(name, ("MSET", name, value, _beside(name), positions))

    def get(self, name: str) -> bytes | None:
        ((value, positions),) = self.request(name, ("MGET", name, _beside(name)))
        if positions is not None:
            self._epoch.require(seen_positions.decode(positions, self._epoch.name))
        return None if value is None else bytes(value)

    def _beside(self, name: str) -> Sequence[str]:
        return (_beside(name),)

    def _beside_values(self, name: str) -> Sequence[bytes]:
        return (seen_positions.encode(self.epoch(), self._epoch.seen()),)

    # Requests

    def request(self, name: str, *commands: Command) -> list[Any]:
        self._require_open()
        part = self._epoch.part_of(name)
        self._epoch.prepare(part)
        replies, history = self._servers.ask(part.slot, (("GET", part.key), *commands))
        self._epoch.confirm(part, replies[0], history)
        return require(replies[1:])

    def epoch(self) -> str:
        return self._epoch.name or self._epoch.current()

    def _together(self, names: Iterable[str]) -> list[list[str]]:
        groups: dict[int, list[str]] = {}
        for name in names:
            groups.setdefault(id(self._epoch.part_of(name)), []).append(name)
        return list(groups.values())

    def _note(self, stream: str, position: Position) -> None:
        self._epoch.note(stream, position)

    def close(self) -> None:
        """End idle connections; every later call raises EventLayerError."""
        self._closed = True
        self._blocking_reads.close()
        self._servers.close()

    def reopen(self) -> None:
        """See ports.EventLayer."""
        self._closed = False
        self._blocking_reads.reopen()
        self._servers.reopen()


def _beside(name: str) -> str:
    """Return the name of the value that holds the positions seen by the writer of this one."""
    return f"{name}:seen"
