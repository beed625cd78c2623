"""Reading on in several pipelines, and noticing when entries were trimmed before they were read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from quaestor.invalidation.event_layer import streams
from quaestor.ports import EventLayer, StreamEntry

_AT_ONCE: Final = 500


class Tail:
    """Not thread-safe. What is read again after a failure is what has not been `passed`."""

    def __init__(self, layer: EventLayer, positions: Mapping[str, str], *, retention_ms: int) -> None:
        self._layer = layer
        self._positions = dict(positions)
        self._retention_s = retention_ms / 1000
        self._read_s = time.monotonic()
        self._doubtful = False

    def read(self, *, block_ms: int) -> list[StreamEntry]:
        """The next entries of each pipeline, waiting up to block_ms for the first."""
        entries = self._layer.read(self._positions, count=_AT_ONCE, block_ms=block_ms)
        now_s = time.monotonic()
        self._doubtful = now_s - self._read_s > self._retention_s / 2 or len(entries) >= _AT_ONCE
        self._read_s = now_s
        return entries

    def missed(self, stream: str) -> bool:
        """Whether entries of this pipeline may be missing before those of the last read. Asks only if that took long, or
        brought so much that there may be a backlog."""
        return self._doubtful and streams.missed(self._positions[stream], self._layer.first_offset(stream))

    def passed(self, entry: StreamEntry) -> None:
        """It has been worked off."""
        self._positions[entry.stream] = entry.offset
