"""What the heartbeats say of the grid: its shape, and how far every cell has got."""

from __future__ import annotations

from enum import Enum, auto

from quaestor.model import Cell, GridShape, Heartbeat


class Change(Enum):
    """What a heartbeat has changed."""

    NOTHING = auto()
    SUCCEEDED = auto()
    """Every cell of a later generation has been heard of: it guards whatever the one before it did."""
    RESHAPED = auto()
    """The same generation has another shape: nobody knows what is guarded."""


class GridView:
    """shape: of the generation that is relied on; None before the first heartbeat. Heartbeats of earlier ones are ignored."""

    def __init__(self) -> None:
        self.shape: GridShape | None = None
        self.fresh_as_of_ms: dict[Cell, int] = {}
        self._successor: GridView | None = None

    def observe(self, beat: Heartbeat) -> Change:
        """O(1)."""
        if self.shape is None:
            self.shape = beat.shape
        if beat.shape.generation < self.shape.generation:
            return Change.NOTHING
        if beat.shape.generation > self.shape.generation:
            return self._of_a_successor(beat)
        reshaped = beat.shape != self.shape
        if reshaped:
            self.shape = beat.shape
            self.fresh_as_of_ms = {}
        self.fresh_as_of_ms[beat.cell] = max(beat.fresh_as_of_ms, self.fresh_as_of_ms.get(beat.cell, 0))
        return Change.RESHAPED if reshaped else Change.NOTHING

    def oldest_ms(self) -> int:
        """The time up to which every cell has processed all writes; 0 while a cell has not been heard of."""
        return min(self.fresh_as_of_ms.values()) if self._complete() else 0

    def columns_ms(self) -> dict[int, int]:
        """The same for each query partition; 0 while one of its cells has not been heard of."""
        if self.shape is None:
            return {}
        rows = range(self.shape.write_partitions)
        return {
            column: min(self.fresh_as_of_ms.get(Cell(query_partition=column, write_partition=row), 0) for row in rows)
            for column in range(self.shape.query_partitions)
        }

    def _complete(self) -> bool:
        if self.shape is None:
            return False
        return len(self.fresh_as_of_ms) == self.shape.query_partitions * self.shape.write_partitions

    def _of_a_successor(self, beat: Heartbeat) -> Change:
        successor = self._successor
        known = successor.shape if successor is not None else None
        if successor is None or known is None or known.generation < beat.shape.generation:
            successor = self._successor = GridView()
        successor.observe(beat)
        if not successor._complete():
            return Change.NOTHING
        self.shape, self.fresh_as_of_ms = successor.shape, successor.fresh_as_of_ms
        self._successor = None
        return Change.SUCCEEDED
