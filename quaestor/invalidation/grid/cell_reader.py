"""Reader of a cell's pipelines, which detects entries trimmed before their turn.

Early writes come again in the write pipeline, so a reader that misses some loses nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quaestor.event_layer import streams
from quaestor.event_layer.bounds import doubtful_after_ms
from quaestor.event_layer.layer_clock import LayerClock
from quaestor.invalidation.grid.cell_names import CellNames
from quaestor.ports import EventLayer, StreamEntry

_ENTRIES_AT_ONCE: Final = 500
_ENTRIES_BEHIND: Final = 2_500
"""Entries read at once while query events wait: the events of tenants further behind are then found soon."""


class ArrivedEntries(NamedTuple):
    """Entries of one read, in order.

    early: writes that arrived ahead of those in the write pipeline.
    queries_missed, writes_missed: entries before these are gone.
    more: there may be more.
    """

    queries: list[StreamEntry]
    writes: list[StreamEntry]
    early: list[StreamEntry]
    queries_missed: bool
    writes_missed: bool
    more: bool = False


class CellReader:
    """Reading end of one cell. Not thread-safe."""

    def __init__(self, layer: EventLayer, names: CellNames, *, layer_clock: LayerClock, retention_ms: int) -> None:
        self._layer = layer
        self._names = names
        self._layer_clock = layer_clock
        self._retention_ms = retention_ms

    @property
    def appended(self) -> tuple[str, str]:
        """Pipelines of ingest. Their appenders may wait for a step of the cell."""
        return self._names.writes, self._names.early_writes

    def positions(self, *, queries_after: str | None, writes_after: str, early_after: str) -> dict[str, str]:
        """Return the offsets by pipeline."""
        positions = {self._names.writes: writes_after, self._names.early_writes: early_after}
        if queries_after is not None:
            positions[self._names.queries] = queries_after
        return positions

    def read(
        self, *, queries_after: str | None, writes_after: str, early_after: str, waiting: bool, wait_ms: int
    ) -> ArrivedEntries:
        """Return the entries behind these offsets. Raises EventLayerError.

        queries_after: None: read no query events now.
        waiting: earlier query events still wait.
        wait_ms: time to wait for the first entry; no wait if query events are waiting.
        """
        positions = self.positions(queries_after=queries_after, writes_after=writes_after, early_after=early_after)
        count = _ENTRIES_BEHIND if waiting else _ENTRIES_AT_ONCE
        entries = self._layer.read(positions, count=count, block_ms=0 if waiting else wait_ms)
        self._layer_clock.read(entries)
        writes = [entry for entry in entries if entry.stream == self._names.writes]
        queries = [entry for entry in entries if entry.stream == self._names.queries]
        early = [entry for entry in entries if entry.stream == self._names.early_writes]
        return ArrivedEntries(
            queries=queries,
            writes=writes,
            early=early,
            writes_missed=bool(writes) and self._missed(self._names.writes, writes_after),
            queries_missed=queries_after is not None
            and bool(queries)
            and self._missed(self._names.queries, queries_after),
            more=max(len(writes), len(queries), len(early)) >= count,
        )

    def _missed(self, stream: str, after: str) -> bool:
        """Whether entries behind `after` were trimmed before this cell read them. Queries the layer only when far behind."""
        doubtful_ms = self._layer_clock.latest_ms - doubtful_after_ms(self._retention_ms)
        if after >= self._layer.offset_at(stream, doubtful_ms):
            return False
        return streams.missed(after, self._layer.first_offset(stream))
