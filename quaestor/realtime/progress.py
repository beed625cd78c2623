"""Progress of a query partition: what the slowest of its cells has reached."""

from __future__ import annotations

from collections import deque

from quaestor.model import Cell, GridShape, Version
from quaestor.realtime.messages import CellProgress, StageProgress


class PartitionProgress:
    """Progress of the cells of one query partition, all together. Not thread-safe.

    version, fresh_as_of_ms: progress of the slowest cell; 0 while a cell has not reported.
    behind: queries whose results may lack writes that the cells have reached, as of the last report and additions since.
    keep_ms: time after the cells' progress during which earlier writes may still be repeated.
    """

    def __init__(self, shape: GridShape, *, keep_ms: int) -> None:
        self.version: Version = 0
        self.fresh_as_of_ms = 0
        self.behind: set[str] = set()
        self._advanced = False
        self._cells = shape.write_partitions
        self._keep_ms = keep_ms
        self._by_cell: dict[Cell, tuple[Version, int]] = {}
        self._history: deque[tuple[int, Version]] = deque()

    def record(self, event: CellProgress, *, now_ms: int) -> None:
        """Take in the progress of one cell. Cells that the partition does not have (any more) say nothing of it."""
        if event.cell.write_partition >= self._cells:
            return
        version, fresh_as_of_ms = self._by_cell.get(event.cell, (0, 0))
        self._by_cell[event.cell] = (max(version, event.version), max(fresh_as_of_ms, event.fresh_as_of_ms))
        if len(self._by_cell) < self._cells:
            return
        before = self.version, self.fresh_as_of_ms
        self.version = min(version for version, _ in self._by_cell.values())
        self.fresh_as_of_ms = min(fresh_as_of_ms for _, fresh_as_of_ms in self._by_cell.values())
        if not self._history or now_ms - self._history[-1][0] >= self._keep_ms // 10:
            self._history.append((now_ms, self.version))
        self._advanced |= before != (self.version, self.fresh_as_of_ms)

    def report(self, stage: str, behind: set[str]) -> StageProgress | None:
        """Report for subscribers, if there is news: the cells have got further, or a result is behind no longer.

        behind: those of `behind` that still are.
        """
        if not self._advanced and len(behind) == len(self.behind):
            return None
        self._advanced, self.behind = False, behind
        return StageProgress(
            stage=stage, version=self.version, fresh_as_of_ms=self.fresh_as_of_ms, behind=tuple(behind)
        )

    def replay_horizon(self, now_ms: int) -> Version:
        """Version before which no write is repeated any more; 0: not known."""
        horizon: Version = 0
        while self._history and self._history[0][0] <= now_ms - self._keep_ms:
            horizon = self._history.popleft()[1]
        return horizon
