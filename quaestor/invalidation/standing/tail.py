"""Reading on in several pipelines, and noticing when entries were trimmed before they were read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from quaestor.invalidation.event_layer import streams
from quaestor.ports import EventLayer, StreamEntry

_AT_ONCE: Final = 500


class Tail:
    """One reader. What is read again after a failure is what has not been `passed`.

    positions: by pipeline; another thread may add and remove some. retention_ms: what is younger is not trimmed.

    A read that does not bring as much as it could covers all that was appended before it began. Only if that has been long
    ago may entries have come and gone unseen: then the entry read last must still be there when the next one comes.
    """

    def __init__(self, layer: EventLayer, positions: Mapping[str, str], *, retention_ms: int) -> None:
        self.positions = dict(positions)
        self._layer = layer
        self._doubtful_s = retention_ms / 2_000
        self._covered_s = time.monotonic()
        self._doubtful: set[str] = set()

    def read(self, *, block_ms: int) -> list[StreamEntry]:
        """The next entries of each pipeline, waiting up to block_ms for the first."""
        began_s, positions = time.monotonic(), dict(self.positions)
        entries = self._layer.read(positions, count=_AT_ONCE, block_ms=block_ms)
        if time.monotonic() - self._covered_s > self._doubtful_s:
            self._doubtful.update(positions)
        if len(entries) < _AT_ONCE:
            self._covered_s = began_s
        return entries

    def missed(self, entry: StreamEntry) -> bool:
        """Whether entries may be missing before this one, the next of its pipeline."""
        if entry.stream not in self._doubtful:
            return False
        self._doubtful.discard(entry.stream)
        return streams.missed(self.positions[entry.stream], self._layer.first_offset(entry.stream))

    def passed(self, entry: StreamEntry) -> None:
        """It has been worked off. Does nothing for a pipeline that is not read any more."""
        if entry.stream in self.positions:
            self.positions[entry.stream] = entry.offset
