"""Reader of several pipelines, which notices when entries were trimmed before they were read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from quaestor.event_layer import offsets, streams
from quaestor.event_layer.bounds import doubtful_after_ms
from quaestor.ports import EventLayer, StreamEntry

LOOK_BACK_MS: Final = 5_000
"""By how much the clock of the event layer may differ from ours where reading begins at a moment; what comes twice is known."""
_AT_ONCE: Final = 500


class PipelineReader:
    """Reader of several pipelines. Unacknowledged entries are read again after a failure.

    positions: by pipeline; another thread may add and remove some.
    retention_ms: older entries are trimmed, if not before (see event_layer/bounds.py).

    A read that returns fewer entries than its limit covers all entries appended before its beginning. If that was long ago,
    entries may have come and gone unseen. The entry read last must then still be there when the next one comes. If no entry
    has been read yet, there is no such evidence, and entries count as missed.
    """

    def __init__(self, layer: EventLayer, positions: Mapping[str, str], *, retention_ms: int) -> None:
        self.positions = dict(positions)
        self._layer = layer
        self._doubtful_s = doubtful_after_ms(retention_ms) / 1_000
        self._covered_s = time.monotonic()
        self._read_from: dict[str, str] = {}
        self._doubtful: set[str] = set()

    def read(self, *, block_ms: int) -> list[StreamEntry]:
        """The next entries of each pipeline, waiting up to block_ms for the first."""
        began_s, positions = time.monotonic(), dict(self.positions)
        entries = self._layer.read(positions, count=_AT_ONCE, block_ms=block_ms)
        if time.monotonic() - self._covered_s > self._doubtful_s:
            self._doubtful.update(stream for stream, _ in positions.items() & self._read_from.items())
        self._read_from = positions
        if len(entries) < _AT_ONCE:
            self._covered_s = began_s
        return entries

    def missed(self, entry: StreamEntry) -> bool:
        """Whether entries may be missing before this one, the next of its pipeline."""
        if entry.stream not in self._doubtful:
            return False
        self._doubtful.discard(entry.stream)
        place = self.positions[entry.stream]
        return not offsets.is_entry(place) or streams.missed(place, self._layer.first_offset(entry.stream))

    def acknowledge(self, entry: StreamEntry) -> None:
        """Go on behind this entry: it has been worked off. Does nothing for a pipeline that is not read any more."""
        if entry.stream in self.positions:
            self.positions[entry.stream] = self._read_from[entry.stream] = entry.offset
