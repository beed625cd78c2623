"""View of the grid from its heartbeats: its shape, and the progress of every cell."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from quaestor.model import GridShape, Heartbeat, Version

_UNHEARD: Final = -1


class Change(Enum):
    """Change of the grid that a heartbeat reports."""

    NOTHING = auto()
    SUCCEEDED = auto()
    """Every cell of a later generation has proved a moment: that generation guards all registrations of the former one."""
    RESHAPED = auto()
    """The same generation has another shape: which registrations are guarded is unknown."""


class GridView:
    """Shape and progress of the grid in use. Heartbeats of earlier generations are ignored.

    One thread observes; others may read.

    shape: shape of the generation in use; None before the first heartbeat.
    """

    def __init__(self) -> None:
        self.shape: GridShape | None = None
        self._fresh_as_of_ms: list[list[int]] = []
        """Time up to which each cell is fresh: by query partition, by write partition."""
        self._slowest_ms: list[int] = []
        """By query partition: the earliest of its cells' times."""
        self._matched: list[list[Version]] = []
        """Version up to which each cell has matched: by query partition, by write partition."""
        self._unheard = 0
        self._successor: GridView | None = None

    def reset(self) -> None:
        """Forget all heartbeats: the grid must prove itself anew."""
        self.shape = self._successor = None
        self._fresh_as_of_ms, self._slowest_ms, self._matched, self._unheard = [], [], [], 0

    def observe(self, beat: Heartbeat) -> Change:
        """Take in a heartbeat. O(write partitions)."""
        if self.shape is None:
            self._begin(beat.shape)
        assert self.shape is not None
        if beat.shape.generation < self.shape.generation:
            return Change.NOTHING
        if beat.shape.generation > self.shape.generation:
            return self._of_a_successor(beat)
        reshaped = beat.shape != self.shape
        if reshaped:
            self._begin(beat.shape)
        self._note(beat)
        return Change.RESHAPED if reshaped else Change.NOTHING

    def oldest_ms(self) -> int:
        """Return the time up to which every cell has processed all writes; 0 while a cell is unheard."""
        return min(self.partitions_ms(), default=0)

    def partitions_ms(self) -> tuple[int, ...]:
        """Return the same time for each query partition; 0 while one of its cells is unheard.

        Of a generation that followed another: 0 while any cell is unheard. Processes that have not heard all its cells still
        rely on the former generation, and would not notice a silent cell of the new one.
        """
        shape = self.shape
        if shape is None:
            return ()
        if shape.generation and self._unheard:
            return (0,) * shape.query_partitions
        return tuple(max(0, fresh_ms) for fresh_ms in self._slowest_ms)

    def matched(self) -> Version:
        """Return the version up to which every cell has matched all writes; 0 while a cell has not reported one. O(cells)."""
        return min(map(min, self._matched), default=0)

    def _begin(self, shape: GridShape) -> None:
        self._fresh_as_of_ms = [[_UNHEARD] * shape.write_partitions for _ in range(shape.query_partitions)]
        self._slowest_ms = [_UNHEARD] * shape.query_partitions
        self._matched = [[0] * shape.write_partitions for _ in range(shape.query_partitions)]
        self._unheard = shape.query_partitions * shape.write_partitions
        self.shape = shape

    def _note(self, beat: Heartbeat) -> None:
        if not beat.fresh_as_of_ms:
            # The cell runs, but has not matched up to any known moment yet. Otherwise a generation of such cells would take
            # over from a fresh one.
            return
        query_partition, write_partition = beat.cell.query_partition, beat.cell.write_partition
        cells_ms = self._fresh_as_of_ms[query_partition]
        self._unheard -= cells_ms[write_partition] == _UNHEARD
        cells_ms[write_partition] = max(beat.fresh_as_of_ms, cells_ms[write_partition])
        self._slowest_ms[query_partition] = min(cells_ms)
        matched = self._matched[query_partition]
        matched[write_partition] = max(beat.matched, matched[write_partition])

    def _of_a_successor(self, beat: Heartbeat) -> Change:
        successor = self._successor
        known = successor.shape if successor is not None else None
        if successor is None or known is None or known.generation < beat.shape.generation:
            successor = self._successor = GridView()
        successor.observe(beat)
        if successor._unheard:
            return Change.NOTHING
        self._fresh_as_of_ms, self._slowest_ms = successor._fresh_as_of_ms, successor._slowest_ms
        self._matched = successor._matched
        self._unheard, self._successor = 0, None
        self.shape = successor.shape
        return Change.SUCCEEDED
