"""Pipelines as Redis streams: the common part of one server and a cluster."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets as _offsets
from quaestor.event_layer.redis_requests import FIELD, Command, Position, offset, position
from quaestor.ports import PipelineSize, StreamEntry
from quaestor.redis.scripts import FREES

_LEASE: Final = (
    FREES
    + """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
)
_RELEASE: Final = FREES + "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1"
_SWAP: Final = """
local value = redis.call('GET', KEYS[1])
if ARGV[1] == '1' then
  if value ~= ARGV[2] then return 0 end
elseif value then return 0 end
-- the value is as expected
for number, name in ipairs(KEYS) do redis.call('SET', name, ARGV[2 + number]) end
return 1
"""


class RedisPipelines(ABC):
    """Pipelines and values in Redis; see ports.EventLayer.

    RedisEventLayer and ClusterEventLayer define how a request reaches its server, and when a loss of data is reported. Safe
    to use from several threads. A failed call is not repeated; the caller decides. A failed append may have been performed.
    Offsets count the server's milliseconds, so `offset_at` and `trim` expect the caller's clock to agree with the server's.
    """

    immediate = False

    def __init__(self, deployment: str) -> None:
        self._deployment = deployment
        self._lock = threading.Lock()
        self._closed = False

    @abstractmethod
    def request(self, name: str, *commands: Command) -> list[Any]:
        """Return the replies to commands whose keys all lie where `name` does, from one round trip.

        Raises EventLayerError if any failed, EventLayerResetError if the data were lost before.
        """

    @abstractmethod
    def epoch(self) -> str:
        """Return the current data epoch. Raises EventLayerError if it must be read and cannot be."""

    @abstractmethod
    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]: ...

    @abstractmethod
    def reopen(self) -> None:
        """Allow use again after close()."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _together(self, names: Iterable[str]) -> list[list[str]]:
        """Return these names in groups for one request each."""

    @abstractmethod
    def _note(self, stream: str, position: Position) -> None:
        """Note that this entry exists."""

    def entry_id(self, offset: str) -> str:
        """Return the offset in Redis' form. Raises EventLayerResetError if it is of another epoch."""
        epoch = _offsets.epoch_of(offset)
        if epoch is not None and epoch != self.epoch():
            raise EventLayerResetError(
                f"offset {offset} is from before the data of deployment {self._deployment!r} were lost; start over"
            )
        at_ms, sequence = _offsets.position(offset)
        return f"{at_ms}-{sequence}"

    def _require_epoch(self, epoch: str) -> None:
        """Require that this epoch, the current one before a request, is still the current one after the request.

        Another thread may have received the report of a loss in between. This thread's offsets are then of the lost data,
        although its request was answered. Raises EventLayerResetError.
        """
        if epoch != self.epoch():
            raise EventLayerResetError(f"the data of deployment {self._deployment!r} were lost while they were read")

    def _require_open(self) -> None:
        if self._closed:
            raise EventLayerError("the Redis event layer was closed; make a new one", retryable=False)

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        if payloads:
            self._add(stream, adds_of(stream, payloads))

    def _add(self, stream: str, adds: Sequence[Command], *further: Command) -> list[Any]:
        """Add all entries or none. Returns the replies to the further commands of the same request."""
        single = len(adds) == 1
        replies = self.request(stream, *(adds if single else (("MULTI",), *adds, ("EXEC",))), *further)
        ids = replies[:1] if single else replies[len(adds) + 1]
        for entry_id in ids:
            if isinstance(entry_id, Exception):
                raise EventLayerError(f"{stream} did not take an entry: {entry_id}") from entry_id
        self._note(stream, position(ids[-1]))
        return replies[len(replies) - len(further) :]

    def offset_at(self, stream: str, at_ms: int) -> str:
        return _offsets.just_before(at_ms, self.epoch())

    def first_offset(self, stream: str) -> str | None:
        epoch = self.epoch()
        (reply,) = self.request(stream, ("XRANGE", stream, "-", "+", "COUNT", 1))
        self._require_epoch(epoch)
        return offset(reply[0][0], epoch) if reply else None

    def trim(self, stream: str, *, before_ms: int) -> None:
        self.request(stream, _trim(stream, before_ms))

    def measure(self, stream: str) -> PipelineSize:
        return self.trim_and_measure({stream: None})[stream]

    def trim_and_measure(self, before_ms: Mapping[str, int | None]) -> dict[str, PipelineSize]:
        sizes: dict[str, PipelineSize] = {}
        for together in self._together(before_ms):
            commands: list[Command] = [("TIME",)]
            for name in together:
                commands += (("XLEN", name), ("MEMORY", "USAGE", name))
            trims = [_trim(name, before) for name in together if (before := before_ms[name]) is not None]
            replies = self.request(together[0], *trims, *commands)[len(trims) :]
            at_ms = int(replies[0][0]) * 1000 + int(replies[0][1]) // 1000
            for name, entries, size in zip(together, replies[1::2], replies[2::2], strict=True):
                sizes[name] = PipelineSize(int(entries), int(size or 0), at_ms)
        return sizes

    def put(self, name: str, value: bytes) -> None:
        self.request(name, ("SET", name, value))

    def get(self, name: str) -> bytes | None:
        (value,) = self.request(name, ("GET", name))
        return None if value is None else bytes(value)

    def lease(self, name: str, holder: str, *, lease_ms: int) -> bool:
        (taken,) = self.request(name, ("EVAL", _LEASE, 1, name, holder, lease_ms))
        return bool(taken)

    def release(self, name: str, holder: str) -> None:
        self.request(name, ("EVAL", _RELEASE, 1, name, holder))

    def leaseholder(self, name: str) -> str | None:
        (holder,) = self.request(name, ("GET", name))
        return None if holder is None else str(holder.decode())

    def swap(self, name: str, before: bytes | None, value: bytes) -> bool:
        keys = (name, *self._beside(name))
        (swapped,) = self.request(
            name,
            (
                "EVAL",
                _SWAP,
                len(keys),
                *keys,
                int(before is not None),
                before or b"",
                value,
                *self._beside_values(name),
            ),
        )
        return bool(swapped)

    def _beside(self, name: str) -> Sequence[str]:
        """Return the names of values that a put writes along with a value."""
        return ()

    def _beside_values(self, name: str) -> Sequence[bytes]:
        """Return the values that a put writes under these names."""
        return ()


def adds_of(stream: str, payloads: Sequence[bytes]) -> list[Command]:
    """Return the commands that append these payloads."""
    return [("XADD", stream, "*", FIELD, payload) for payload in payloads]


def _trim(stream: str, before_ms: int) -> Command:
    return ("XTRIM", stream, "MINID", "=", max(before_ms, 0))
