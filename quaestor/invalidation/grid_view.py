"""What the heartbeats say of the grid: its shape, and how far every cell has got."""

from __future__ import annotations

from dataclasses import dataclass, field

from quaestor.model import Cell, GridShape, Heartbeat


@dataclass(slots=True)
class GridView:
    """What the heartbeats say."""

    shape: GridShape | None = None
    fresh_as_of_ms: dict[Cell, int] = field(default_factory=dict)

    def observe(self, beat: Heartbeat) -> bool:
        """Returns whether the grid has changed its shape."""
        changed = self.shape is not None and beat.shape != self.shape
        if beat.shape != self.shape:
            self.shape = beat.shape
            self.fresh_as_of_ms = {}
        self.fresh_as_of_ms[beat.cell] = max(beat.fresh_as_of_ms, self.fresh_as_of_ms.get(beat.cell, 0))
        return changed

    def oldest_ms(self) -> int:
        """The time up to which every cell has processed all writes; 0 while a cell has not been heard of."""
        if self.shape is None:
            return 0
        cells = self.shape.query_partitions * self.shape.write_partitions
        return min(self.fresh_as_of_ms.values()) if len(self.fresh_as_of_ms) == cells else 0
