"""Data epoch of a deployment whose pipelines lie on several servers: a loss on any server ends it for all.

A *part* is all data with one hash tag. Each part has a key that names the epoch of its data; every request to the part reads it
along. The part `{<deployment>:n}`, which every process uses, holds the *current* epoch, and the set of parts used in it. Hence:

- A part without its key that was used in this epoch has lost its data. A new current epoch ends the old one.
- A part without its key that was not used in this epoch is new.
- A part that names an earlier epoch is taken into the current one. A part that names a later epoch shows that
`{<deployment>:n}`
  itself went back to an earlier state. Then an epoch after both begins; epochs are numbered for that.

A server that lost only its last moments still has the key. Each object therefore remembers the newest entry that it has seen
in each stream, including entries that others report (seen_positions.py). The object looks for these entries whenever
another server answers for a part, or the same server with another history.

Each object does that every LOOK_S, whatever its requests are, and reads the current epoch then. Within that time every object
therefore knows that an epoch is over.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from redis.crc import key_slot

from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.redis_cluster.connections import ClusterConnections, Node
from quaestor.event_layer.redis_requests import Command, Position, is_lost, presence_of, require

LOOK_S: Final = 0.5
_ATTEMPTS: Final = 4
_PRESENCE: Final = 4
"""Number of replies to presence_of."""
_RENEW: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2])
  redis.call('DEL', KEYS[2])
end
return redis.call('GET', KEYS[1])
"""


@dataclass(slots=True)
class Part:
    """Pipelines and values with one hash tag, which therefore lie on one server.

    tag, slot: the hash tag, and its slot.
    key: key of the value that names its epoch.
    seen: the newest entry of each stream that this object has seen.
    reported: the newest entries that others have seen.
    history: history of the server for which `seen` was verified; None: not verified yet.
    """

    tag: str
    slot: int
    key: str
    seen: dict[str, Position] = field(default_factory=dict)
    reported: dict[str, Position] = field(default_factory=dict)
    history: str | None = None


class DataEpoch:
    """Data epoch in the view of one event layer object, and the entries that the object has seen in it. Thread-safe.

    name: None until the first request for it.
    reads: number of noted reads; a larger number means new positions to report to others.
    """

    def __init__(self, servers: ClusterConnections, deployment: str) -> None:
        self.name: str | None = None
        self.reads = 0
        self._read: dict[str, Position] = {}
        self._servers = servers
        self._deployment = deployment
        self._lock = threading.Lock()
        self._parts: dict[str, Part] = {}
        self._names: dict[str, Part] = {}
        self._parts_key = streams.parts(deployment)
        self._main = self.part_of(streams.epoch(deployment))
        self._look_due_s = 0.0

    # Parts

    def part_of(self, name: str) -> Part:
        """Return the part of this stream or value. O(1)."""
        part = self._names.get(name)
        if part is None:
            tag = streams.tag_of(name)
            slot = key_slot(name.encode())
            with self._lock:
                part = self._parts.setdefault(tag, Part(tag, slot, streams.epoch_beside(tag)))
                self._names[name] = part
        return part

    def note(self, stream: str, position: Position, *, read_in: str | None = None) -> None:
        """Remember that this entry exists.

        read_in: epoch in which it was read; None: it was appended.
        """
        part = self.part_of(stream)
        with self._lock:
            if read_in not in (None, self.name):
                return
            if part.seen.get(stream, (0, 0)) < position:
                part.seen[stream] = position
            if read_in is not None:
                self._read[stream] = position
                self.reads += 1

    def read_elsewhere(self, stream: str) -> dict[str, Position]:
        """Return the newest entry read in each pipeline of other parts: the appended entry may rest on them."""
        part = self.part_of(stream)
        with self._lock:
            return {name: position for name, position in self._read.items() if self._names[name] is not part}

    def note_reported(self, seen: Mapping[str, Position]) -> None:
        """Remember entries that another object has seen; the next look checks that they exist."""
        for stream, position in seen.items():
            if stream.startswith(f"quaestor:{{{self._deployment}:"):
                part = self.part_of(stream)
                with self._lock:
                    if max(part.seen.get(stream, (0, 0)), part.reported.get(stream, (0, 0))) < position:
                        part.reported[stream] = position

    def seen(self) -> dict[str, Position]:
        """Return the newest noted entries, by stream."""
        with self._lock:
            return {stream: position for part in self._parts.values() for stream, position in part.seen.items()}

    # Requests

    def current(self) -> str:
        """Return the epoch that offsets carry. Reads it the first time."""
        if self.name is None:
            self.settle(self._main)
        assert self.name is not None
        return self.name

    def prepare(self, part: Part) -> None:
        """Prepare a request to this part. Raises EventLayerResetError if data were lost."""
        if time.monotonic() >= self._look_due_s:
            self.look()
        if part.history is None:
            self.settle(part)

    def confirm(self, part: Part, named: Any, history: str) -> None:
        """Judge the reply to a request.

        named: epoch that the part named along with it.
        history: history of the server that replied.
        """
        if isinstance(named, Exception):
            raise EventLayerError(f"Redis refused a request: {named}") from named
        if named is None or named.decode() != self.name:
            self.settle(part)
            raise EventLayerError(f"the data of {part.tag} have just been taken into another epoch; try again")
        self.answered(part, history)

    def answered(self, part: Part, history: str) -> None:
        """Accept an answer of a server with this history, before entries of it are noted.

        If the history differs from the last verified one, the seen entries are looked up. Raises EventLayerResetError if one
        is missing.
        """
        if history != part.history and self.settle(part) != history:
            part.history = None  # also for entries noted from this answer

    def require(self, seen: Mapping[str, Position]) -> None:
        """Check that the entries behind a value exist, before the value is returned.

        Raises EventLayerResetError if one is missing.
        """
        self.note_reported(seen)
        for part in {id(part): part for part in map(self.part_of, seen)}.values():
            if part.reported:
                self.prepare(part)
                self._verify(part)

    def look(self) -> None:
        """Check that every entry seen by this object still exists: one request a server.

        Raises EventLayerResetError if one is missing, EventLayerError if a server with some of them does not answer.
        """
        self._look_due_s = time.monotonic() + LOOK_S
        try:
            if self.name is None:
                self.settle(self._main)
            with self._lock:
                parts = list(self._parts.values())
            by_server: dict[Node, list[Part]] = {}
            for part in parts:
                by_server.setdefault(self._servers.node_of(part.slot), []).append(part)
            for mates in by_server.values():
                self._survey(mates)
        except EventLayerError:
            self._look_due_s = 0.0
            raise

    def _survey(self, parts: list[Part]) -> None:
        with self._lock:
            reported = {part.tag: list(part.reported.items()) for part in parts}
        commands: list[Command] = []
        for part in parts:
            commands.append(("GET", part.key))
            for stream, position in reported[part.tag]:
                commands += presence_of(stream, position)
        replies, history = self._servers.survey(parts[0].slot, commands)
        at = 0
        for part in parts:
            named, at = replies[at], at + 1
            present = replies[at : at + _PRESENCE * len(reported[part.tag])]
            at += len(present)
            sound = isinstance(named, bytes) and named.decode() == self.name and part.history == history
            if sound and not any(isinstance(reply, Exception) for reply in present if not _no_such_key(reply)):
                self._judge(part, reported[part.tag], present)
            else:
                self.settle(part)

    # Epochs

    def settle(self, part: Part) -> str:
        """Determine the epoch of the part, and check that its seen entries exist; return its server's history.

        Raises EventLayerResetError if data were lost, here or elsewhere.
        """
        for _ in range(_ATTEMPTS):
            epoch, used = self._current_epoch(part)
            (named,), history = self._ask(part, ("GET", part.key))
            if named is None and used:
                raise self._over(f"the data of {part.tag} are gone")
            if named is None:
                self._ask(part, ("SET", part.key, epoch, "NX"))
                self._use(part)
            elif named.decode() == epoch:
                if not used:
                    self._use(part)
                self._verify(part)
                part.history = history
                return history
            elif _number(named.decode()) >= _number(epoch):
                self._current_epoch(part)  # another epoch may have begun just now
                raise self._over(f"{part.tag} names an epoch that no other part knows", beyond=named.decode())
            else:
                self._ask(part, ("SET", part.key, epoch, "XX"))
        raise EventLayerError(f"the data of {part.tag} change servers; try again")

    def _ask(self, part: Part, *commands: Command) -> tuple[list[Any], str]:
        replies, history = self._servers.ask(part.slot, commands)
        return require(replies), history

    def _use(self, part: Part) -> None:
        """Record the part as used: from now on its absence is a loss. No append comes before this record."""
        self._ask(self._main, ("SADD", self._parts_key, part.tag))

    def _current_epoch(self, part: Part) -> tuple[str, bool]:
        """Return the epoch that {<deployment>:n} names, and whether the part was used in it.

        Raises EventLayerResetError if this object knows another epoch.
        """
        key = self._main.key
        (_, named, used), _ = self._ask(
            self._main, ("SET", key, _name(1), "NX"), ("GET", key), ("SISMEMBER", self._parts_key, part.tag)
        )
        epoch = named.decode()
        if self.name is None:
            with self._lock:
                self.name = self.name or epoch
        if epoch != self.name:
            assert self.name is not None
            if _number(epoch) <= _number(self.name):
                epoch = self._renewed(epoch, beyond=self.name)
            raise self._adopt(epoch, "its epoch is over")
        return epoch, bool(used) or part is self._main

    def _verify(self, part: Part) -> None:
        with self._lock:
            wanted = list((part.seen | part.reported).items())
        if wanted:
            commands = [command for stream, position in wanted for command in presence_of(stream, position)]
            replies, _ = self._servers.ask(part.slot, commands)
            self._judge(part, wanted, replies)

    def _judge(self, part: Part, wanted: list[tuple[str, Position]], replies: list[Any]) -> None:
        for i, (stream, position) in enumerate(wanted):
            if is_lost(replies[i * _PRESENCE : (i + 1) * _PRESENCE], position):
                raise self._over(f"the end of {stream} is missing")
            with self._lock:
                if part.reported.get(stream) == position:
                    del part.reported[stream]
            self.note(stream, position)

    def _over(self, why: str, beyond: str | None = None) -> EventLayerResetError:
        assert self.name is not None
        return self._adopt(self._renewed(self.name, beyond=beyond or self.name), why)

    def _renewed(self, epoch: str, *, beyond: str) -> str:
        """Return the epoch after this one, possibly begun by another object meanwhile."""
        for _ in range(_ATTEMPTS):
            following = _name(max(_number(epoch), _number(beyond)) + 1)
            (named,), _ = self._ask(self._main, ("EVAL", _RENEW, 2, self._main.key, self._parts_key, epoch, following))
            if named is not None and _number(named.decode()) > _number(beyond):
                return str(named.decode())
            if named is None:
                self._ask(self._main, ("SET", self._main.key, following, "NX"))
            else:
                epoch = named.decode()
        raise EventLayerError(f"the epoch of the data of deployment {self._deployment!r} could not be ended; try again")

    def _adopt(self, epoch: str, why: str) -> EventLayerResetError:
        with self._lock:
            self.name = epoch
            self._read.clear()
            for part in self._parts.values():
                part.history = None
                part.seen.clear()
                part.reported.clear()
        return EventLayerResetError(f"the event layer of deployment {self._deployment!r} lost its data: {why}")


def _name(number: int) -> str:
    return f"{number:08x}.{uuid.uuid4().hex}"


def _number(epoch: str) -> int:
    try:
        return int(epoch.partition(".")[0], 16)
    except ValueError:
        return 0


def _no_such_key(reply: Any) -> bool:
    """Whether XINFO refused a stream because it does not exist: then it is lost."""
    return isinstance(reply, Exception) and "no such key" in str(reply)
