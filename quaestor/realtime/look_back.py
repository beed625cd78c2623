"""Look back into results pipelines: changes of queries from before this process followed them.

Clients come back together after a restart. One look at a pipeline therefore serves all its queries: each call reads only the
entries that have come since the last one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from quaestor.clock import Clock
from quaestor.errors import EventLayerError
from quaestor.ports import EventLayer
from quaestor.realtime.codec import change_place, decode_result
from quaestor.realtime.messages import ResultChange
from quaestor.realtime.notices import Step
from quaestor.realtime.pipeline_reader import LOOK_BACK_MS

_WINDOWS_MS: Final = (2_000, 10_000, 60_000)
"""Lengths of the looks: most clients come back within a moment, and a short look reads few entries."""
_AT_ONCE: Final = 1_000
_MOST_ENTRIES: Final = 50_000
_MOST_BYTES: Final = 64 * 1024 * 1024
_KEPT_MS: Final = 5_000
"""Time that a look is kept for the next query."""


class _Look:
    """Look at one pipeline since a moment.

    since_ms: the moment.
    used_ms: time of the newest call.
    changes: payloads of changes by query and epoch, then by number.
    is_full: whether the look has met its bounds. A full look reads no further.
    """

    def __init__(self, layer: EventLayer, stream: str, since_ms: int) -> None:
        self.since_ms = since_ms
        self.used_ms = 0
        self.changes: dict[tuple[str, str], dict[int, bytes]] = {}
        self.is_full = False
        self._layer = layer
        self._stream = stream
        self._offset = layer.offset_at(stream, since_ms)
        self._entries = self._bytes = 0

    def of(self, query: tuple[str, str], newest: int) -> dict[int, bytes]:
        """Return the changes of a query by number, read at least up to the newest one, if the pipeline holds it."""
        known = self.changes.setdefault(query, {})
        more = True
        while more and newest not in known and not self.is_full:
            more = self._read_on()
        return known

    def _read_on(self) -> bool:
        """Read the next entries. Return whether there may be more."""
        entries = self._layer.read({self._stream: self._offset}, count=_AT_ONCE, block_ms=0)
        for entry in entries:
            self._entries += 1
            place = change_place(entry.payload)
            if place is not None:
                self._bytes += len(entry.payload)
                self.changes.setdefault(place.query, {})[place.sequence] = entry.payload
        if entries:
            self._offset = entries[-1].offset
        self.is_full = self._entries >= _MOST_ENTRIES or self._bytes >= _MOST_BYTES
        return len(entries) == _AT_ONCE


class LookBack:
    """Looks at results pipelines. Use from any thread."""

    def __init__(self, layer: EventLayer, clock: Clock) -> None:
        self._layer = layer
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: dict[str, _Look] = {}

    def changes(self, stream: str, query_id: str, position: Step, *, wanted: int) -> list[ResultChange]:
        """Return the changes of a query that lead to a position, without a hole, the oldest first.

        stream: the results pipeline of the query.
        wanted: number of the oldest change that is needed. Fewer changes come if the pipeline has lost older ones, or if the
            look meets its bounds.

        Raises no error: without an event layer there are no changes.
        """
        with suppress(EventLayerError):
            messages = map(decode_result, self._payloads(stream, query_id, position, wanted))
            return [message for message in messages if isinstance(message, ResultChange)]
        return []

    def _payloads(self, stream: str, query_id: str, position: Step, wanted: int) -> list[bytes]:
        payloads: list[bytes] = []
        with self._lock:
            for window_ms in _WINDOWS_MS:
                look = self._look(stream, window_ms)
                changes = look.of((query_id, position.epoch), position.sequence)
                payloads = _without_holes(changes, position, wanted)
                if len(payloads) > position.sequence - wanted:
                    break
        return payloads

    def forget(self) -> None:
        """Forget looks without a recent call."""
        if self._looks:
            with self._lock:
                before_ms = self._clock() - _KEPT_MS
                self._looks = {stream: look for stream, look in self._looks.items() if look.used_ms >= before_ms}

    def _look(self, stream: str, window_ms: int) -> _Look:
        now_ms = self._clock()
        since_ms = now_ms - window_ms - LOOK_BACK_MS
        look = self._looks.get(stream)
        if look is None or look.since_ms > since_ms:
            look = self._looks[stream] = _Look(self._layer, stream, since_ms)
        look.used_ms = now_ms
        return look


def _without_holes(changes: dict[int, bytes], position: Step, wanted: int) -> list[bytes]:
    oldest = position.sequence
    while oldest in changes and oldest >= wanted:
        oldest -= 1
    return [changes[number] for number in range(oldest + 1, position.sequence + 1)]
