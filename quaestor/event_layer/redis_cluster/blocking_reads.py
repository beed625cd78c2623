"""Blocking reads of several pipelines of a cluster: each an XREAD on a connection of its own, all of them watched.

A request stays open when its reader leaves with the entries of another pipeline. The reader's next read takes it up. A
reader that comes back soon therefore costs a request only for the pipelines that had entries. A reply without a waiting
reader is discarded. Nothing is lost by that, because reading removes nothing.
"""

from __future__ import annotations

import select
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis
from redis.exceptions import AskError, TryAgainError

from quaestor.errors import EventLayerError
from quaestor.event_layer.redis_cluster.connections import ClusterConnections, Link
from quaestor.event_layer.redis_cluster.data_epoch import DataEpoch, Part
from quaestor.event_layer.redis_requests import Command, reply

_BLOCK_MS: Final = 1_000
_MOST_KEPT: Final = 256
_ON_ITS_WAY_S: Final = 0.1
_POLL_S: Final = 0.02
"""Period of polling, in place of blocking, while a slot moves from one server to another."""
_TRIES: Final = 8
_CHANGED_ROLE: Final = "UNBLOCKED"
"""Answer of a server to blocked readers when it stops being a primary."""

Answer = list[tuple[bytes, list[tuple[bytes, list[bytes]]]]]
"""Answer of XREAD: entries by stream."""


@dataclass(frozen=True, slots=True)
class Group:
    """Pipelines of one part, and the entry after which each is read."""

    part: Part
    after: Mapping[str, str]

    def command(self, count: int, *block: Any) -> Command:
        """Return the XREAD of these pipelines.

        count: largest number of entries of each.
        block: nothing, or BLOCK and the milliseconds.
        """
        return ("XREAD", "COUNT", count, *block, "STREAMS", *self.after, *self.after.values())


@dataclass(slots=True)
class _Read:
    """Request without an answer so far.

    link: None: the slot is moving, so blocking is impossible there.
    """

    group: Group
    count: int
    epoch: str
    link: Link | None


class BlockingReads:
    """Open blocking reads of one event layer object. Safe to use from several threads."""

    def __init__(self, servers: ClusterConnections, epoch: DataEpoch) -> None:
        self._servers = servers
        self._epoch = epoch
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], _Read] = OrderedDict()
        self._closed = False

    def wait(self, groups: Sequence[Group], *, count: int, wait_s: float) -> dict[int, Answer]:
        """Return the answers of the first groups with entries, by their places in `groups`; empty if none has within wait_s."""
        deadline_s = time.monotonic() + wait_s
        reads: list[_Read] = []
        answers: dict[int, Answer] = {}
        try:
            reads.extend(self._taken_up(group, count) or self._begin(group, count) for group in groups)
            while not answers:
                self._until_ready(reads, deadline_s)
                late = time.monotonic() >= deadline_s
                for i, read in enumerate(reads):
                    if (answer := self._answer(read)) is not None:
                        if answer:
                            answers[i] = answer
                        elif not late:
                            reads[i] = self._begin(read.group, count)
                if late:
                    break
        except BaseException:
            for read in reads:
                self._drop(read)
            raise
        self._keep(reads)
        return answers

    # One request

    def _begin(self, group: Group, count: int) -> _Read:
        part, epoch = group.part, self._epoch.current()
        for _ in range(_TRIES):
            link = self._servers.take(part.slot)
            try:
                connection = link.connection
                commands = (("GET", part.key), group.command(count, "BLOCK", _BLOCK_MS))
                connection.send_packed_command(connection.pack_commands(commands))
                named = reply(connection)
                if isinstance(named, redis.ResponseError):
                    refused = [named, reply(connection)]
                    self._servers.give_back(link)
                    if self._servers.redirected(refused):
                        continue
                    return _Read(group, count, epoch, None)
                self._epoch.confirm(part, named, link.history)
            except (redis.RedisError, OSError) as error:
                raise self._servers.failed(link, error) from error
            except BaseException:
                link.connection.disconnect()
                raise
            return _Read(group, count, epoch, link)
        raise EventLayerError(f"the servers of the Redis Cluster disagree about the owner of slot {part.slot}")

    def _answer(self, read: _Read) -> Answer | None:
        """Return the answer to a request. None: none yet, the request stays open. Empty: no entries during its wait."""
        if read.link is None:
            part = read.group.part
            (named, answer), history = self._servers.ask(part.slot, (("GET", part.key), read.group.command(read.count)))
            self._epoch.confirm(part, named, history)
            return _entries(answer)
        link = read.link
        try:
            if not link.connection.can_read(0):
                return None
            answer = reply(link.connection)
        except (redis.RedisError, OSError) as error:
            read.link = None
            raise self._servers.failed(link, error) from error
        read.link = None
        self._servers.give_back(link)
        if type(answer) in (AskError, TryAgainError):
            return None
        if isinstance(answer, redis.ResponseError) and (
            self._servers.redirected([answer]) or str(answer).startswith(_CHANGED_ROLE)
        ):
            return []
        entries = _entries(answer)
        if entries:
            self._epoch.answered(read.group.part, link.history)
        return entries

    def _until_ready(self, reads: Sequence[_Read], deadline_s: float) -> None:
        poll = select.poll()
        left_s = deadline_s - time.monotonic()
        for read in reads:
            if read.link is None:
                left_s = min(left_s, _POLL_S)
            elif _ready(read.link):
                return
            else:
                # There is no public way to watch several of the driver's connections.
                poll.register(read.link.connection._sock, select.POLLIN | select.POLLERR | select.POLLHUP)
        if left_s > 0:
            poll.poll(left_s * 1000)

    # What stays asked

    def _taken_up(self, group: Group, count: int) -> _Read | None:
        with self._lock:
            kept = self._kept.pop(_key(group), None)
        if kept is None:
            return None
        if kept.group.after != group.after:
            self._recover(kept)
        elif kept.count <= count and kept.epoch == self._epoch.name:
            return kept
        else:
            self._drop(kept)
        return None

    def _recover(self, read: _Read) -> None:
        """Discard the answer of a request that its reader has overtaken. The answer is there, or will be in a moment."""
        link = read.link
        if link is None:
            return
        try:
            if link.connection.can_read(_ON_ITS_WAY_S):
                reply(link.connection)
                self._servers.give_back(link)
                return
        except (redis.RedisError, OSError):
            pass
        link.connection.disconnect()

    def _keep(self, reads: Sequence[_Read]) -> None:
        left = []
        with self._lock:
            for read in reads:
                if read.link is not None:
                    if (other := self._kept.pop(_key(read.group), None)) is not None:
                        left.append(other)
                    self._kept[_key(read.group)] = read
            while self._kept and (self._closed or len(self._kept) > _MOST_KEPT):
                left.append(self._kept.popitem(last=False)[1])
        for read in left:
            self._drop(read)

    def _drop(self, read: _Read) -> None:
        if read.link is not None:
            read.link.connection.disconnect()
            read.link = None

    def close(self) -> None:
        """End all requests: none is answered any more."""
        with self._lock:
            self._closed = True
        self._keep(())

    def reopen(self) -> None:
        """Allow use again after close()."""
        with self._lock:
            self._closed = False


def _ready(link: Link) -> bool:
    """Whether there is data to read, or the end of the connection."""
    try:
        return bool(link.connection.can_read(0))
    except (redis.RedisError, OSError):
        return True


def _key(group: Group) -> tuple[str, ...]:
    return tuple(group.after)


def _entries(answer: Any) -> Answer:
    if isinstance(answer, Exception):
        raise EventLayerError(f"Redis refused a request: {answer}") from answer
    return answer or []
