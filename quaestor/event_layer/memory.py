"""Event layer in this process, for embedded mode."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from quaestor.clock import Clock, system_clock
from quaestor.errors import EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets
from quaestor.event_layer.turns import Bell, Turns, TurnTaking
from quaestor.ports import PipelineSize, StreamEntry


@dataclass(slots=True)
class _Stream:
    """Entries in order; `positions` and `payloads` run in parallel. `last` survives trimming."""

    positions: list[tuple[int, int]] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    last: tuple[int, int] = (0, 0)
    bytes: int = 0


class MemoryEventLayer:
    """Event layer in the memory of one process; see ports.EventLayer.

    Nothing is lost while it is open, and nothing outlives it. append and read cost O(entries), trim O(entries kept). An
    append wakes only the readers of its stream.

    turns: loops that take turns.
    """

    immediate = True

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self.turns = TurnTaking(self)
        self._clock = clock
        self._streams: dict[str, _Stream] = {}
        self._values: dict[str, bytes] = {}
        self._leases: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()
        self._bells: dict[str, list[Bell]] = {}
        self._closed = False
        self._openings = itertools.count(1)
        self._epoch = "memory"

    def append(self, stream: str, payloads: Sequence[bytes], *, but: Turns | None = None) -> None:
        """See EventLayer.

        but: is not woken.
        """
        if not payloads:
            return
        with self._lock:
            self._require_open()
            entries = self._streams.setdefault(stream, _Stream())
            now_ms = self._clock()
            for payload in payloads:
                at_ms, sequence = entries.last
                entries.last = (now_ms, 0) if now_ms > at_ms else (at_ms, sequence + 1)
                entries.positions.append(entries.last)
                entries.payloads.append(payload)
                entries.bytes += len(payload)
            bells = self._bells.pop(stream, [])
            if but is not None and but.bell in bells:
                self._bells[stream] = [but.bell]
                bells.remove(but.bell)
        for bell in bells:
            bell.ring()

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        with self._lock:
            after = {stream: self._position(offset) for stream, offset in offsets.items()}
            entries = self._entries_after(after, count)
            if entries or block_ms <= 0:
                return entries
            bell = Bell()
            for stream in after:
                self._bells.setdefault(stream, []).append(bell)
        bell.wait(block_ms / 1000)
        with self._lock:
            self._take_away(bell, after)
            return self._entries_after(after, count)

    def wait(self, bell: Bell, offsets: Mapping[str, str], *, block_ms: float) -> bool:
        """Wait until there are entries behind these offsets, or until the bell rings. Returns whether either is so."""
        with self._lock:
            after = {stream: self._position(offset) for stream, offset in offsets.items()}
            if self._entries_after(after, 1):
                return True
            for stream in after:
                self._bells.setdefault(stream, []).append(bell)
        rang = bell.wait(block_ms / 1000)
        with self._lock:
            self._take_away(bell, after)
        return rang

    def _take_away(self, bell: Bell, streams: Iterable[str]) -> None:
        for stream in streams:
            if bell in (waiting := self._bells.get(stream, [])):
                waiting.remove(bell)

    def _entries_after(self, after: Mapping[str, tuple[int, int]], count: int) -> list[StreamEntry]:
        self._require_open()
        return [entry for stream, position in after.items() for entry in self._after(stream, position, count)]

    def _after(self, stream: str, position: tuple[int, int], count: int) -> list[StreamEntry]:
        entries = self._streams.get(stream)
        if entries is None or entries.last <= position:
            return []
        first = bisect_right(entries.positions, position)
        window = slice(first, first + count)
        return [
            StreamEntry(stream, offsets.offset(*at, self._epoch), payload)
            for at, payload in zip(entries.positions[window], entries.payloads[window], strict=True)
        ]

    def offset_at(self, stream: str, at_ms: int) -> str:
        return offsets.just_before(at_ms, self._epoch)

    def first_offset(self, stream: str) -> str | None:
        with self._lock:
            self._require_open()
            entries = self._streams.get(stream)
            if entries is None or not entries.positions:
                return None
            return offsets.offset(*entries.positions[0], self._epoch)

    def trim(self, stream: str, *, before_ms: int) -> None:
        with self._lock:
            self._require_open()
            if (entries := self._streams.get(stream)) is not None:
                gone = bisect_right(entries.positions, (before_ms - 1, offsets.LAST_SEQUENCE))
                entries.bytes -= sum(map(len, entries.payloads[:gone]))
                del entries.positions[:gone]
                del entries.payloads[:gone]

    def trim_and_measure(self, before_ms: Mapping[str, int | None]) -> dict[str, PipelineSize]:
        for stream, before in before_ms.items():
            if before is not None:
                self.trim(stream, before_ms=before)
        return {stream: self.measure(stream) for stream in before_ms}

    def measure(self, stream: str) -> PipelineSize:
        """Return the size of a pipeline's payloads."""
        with self._lock:
            self._require_open()
            entries = self._streams.get(stream)
            held = (0, 0) if entries is None else (len(entries.payloads), entries.bytes)
            return PipelineSize(*held, self._clock())

    def put(self, name: str, value: bytes) -> None:
        with self._lock:
            self._require_open()
            self._values[name] = value

    def get(self, name: str) -> bytes | None:
        with self._lock:
            self._require_open()
            return self._values.get(name)

    def lease(self, name: str, holder: str, *, lease_ms: int) -> bool:
        with self._lock:
            self._require_open()
            held = self._leases.get(name)
            if held is not None and held[0] != holder and held[1] > self._clock():
                return False
            self._leases[name] = (holder, self._clock() + lease_ms)
            return True

    def release(self, name: str, holder: str) -> None:
        with self._lock:
            self._require_open()
            if self._leases.get(name, ("", 0))[0] == holder:
                del self._leases[name]

    def leaseholder(self, name: str) -> str | None:
        with self._lock:
            self._require_open()
            holder, until_ms = self._leases.get(name, ("", 0))
            return holder if until_ms > self._clock() else None

    def swap(self, name: str, before: bytes | None, value: bytes) -> bool:
        with self._lock:
            self._require_open()
            if self._values.get(name) != before:
                return False
            self._values[name] = value
            return True

    def wake(self) -> None:
        """Wake blocked readers, who find nothing, so that they can end."""
        with self._lock:
            bells = [bell for waiting in self._bells.values() for bell in waiting]
        for bell in bells:
            bell.ring()

    def close(self) -> None:
        """Wake blocked readers; every later call raises EventLayerError."""
        with self._lock:
            self._closed = True
        self.wake()

    def reopen(self) -> None:
        """See ports.EventLayer."""
        with self._lock:
            if self._closed:
                self._streams.clear()
                self._values.clear()
                self._bells.clear()
                self._epoch = f"memory-{next(self._openings)}"
                self._closed = False

    def _require_open(self) -> None:
        if self._closed:
            raise EventLayerError("the in-memory event layer was closed; reopen it", retryable=False)

    def _position(self, offset: str) -> tuple[int, int]:
        epoch, position = _parsed(offset)
        if epoch not in (None, self._epoch):
            raise EventLayerResetError(f"offset {offset} belongs to another event layer; start over")
        return position


@lru_cache(maxsize=256)
def _parsed(offset: str) -> tuple[str | None, tuple[int, int]]:
    """Return the epoch and the position. Cached: a loop reads its quiet pipelines from the same offsets again and again."""
    return offsets.epoch_of(offset), offsets.position(offset)
