"""How far the cells of a column have got, all together."""

from __future__ import annotations

from collections import deque

from quaestor.model import Cell, GridShape, Version
from quaestor.realtime.messages import Progress, Reached


class GridProgress:
    """version, fresh_as_of_ms: what the slowest cell has reached; 0 while one has not been heard of.

    behind: queries whose results are not known to contain what the cells have reached, as far as was told and added
        since.
    keep_ms: how long after the cells have got somewhere writes from before may still be repeated.
    """

    def __init__(self, shape: GridShape, *, keep_ms: int) -> None:
        self.version: Version = 0
        self.fresh_as_of_ms = 0
        self.behind: set[str] = set()
        self._further = False
        self._cells = shape.write_partitions
        self._keep_ms = keep_ms
        self._of: dict[Cell, tuple[Version, int]] = {}
        self._history: deque[tuple[int, Version]] = deque()

    def reached(self, event: Reached, *, now_ms: int) -> None:
        """Cells that the column does not have (any more) say nothing of it."""
        if event.cell.write_partition >= self._cells:
            return
        version, fresh_as_of_ms = self._of.get(event.cell, (0, 0))
        self._of[event.cell] = (max(version, event.version), max(fresh_as_of_ms, event.fresh_as_of_ms))
        if len(self._of) < self._cells:
            return
        before = self.version, self.fresh_as_of_ms
        self.version = min(version for version, _ in self._of.values())
        self.fresh_as_of_ms = min(fresh_as_of_ms for _, fresh_as_of_ms in self._of.values())
        if not self._history or now_ms - self._history[-1][0] >= self._keep_ms // 10:
            self._history.append((now_ms, self.version))
        self._further |= before != (self.version, self.fresh_as_of_ms)

    def told(self, stage: str, behind: set[str]) -> Progress | None:
        """What subscribers have to be told, if there is news: the cells have got further, or a result is behind no longer.

        behind: those of `behind` that still are.
        """
        if not self._further and len(behind) == len(self.behind):
            return None
        self._further, self.behind = False, behind
        return Progress(stage=stage, version=self.version, fresh_as_of_ms=self.fresh_as_of_ms, behind=tuple(behind))

    def gone(self, now_ms: int) -> Version:
        """No write from before this version is repeated any more; 0: not known."""
        gone: Version = 0
        while self._history and self._history[0][0] <= now_ms - self._keep_ms:
            gone = self._history.popleft()[1]
        return gone
