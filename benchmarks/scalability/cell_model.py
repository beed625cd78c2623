"""The model of a cell's cost, fitted to measured cells, and its predictions for other grids.

With w writes to the whole grid, u queries without an index, Q query partitions and W write partitions:

    CPU time of a cell = w / W * (read + tried * u / Q)

`read`: reading, decoding, finding candidates by index, whatever their number; `tried`: one predicate that no index finds. The
second part falls with both dimensions; the first falls with W alone, since Q cells read each write. Likewise W cells hold each
registration, and it costs each of them the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPoint:
    """The measured cost of one cell's work.

    tried: predicates for each write.
    us: CPU microseconds for each write that the cell read.
    """

    query_partitions: int
    write_partitions: int
    tried: float
    us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellModel:
    """read, tried: CPU microseconds, see above."""

    read_us: float
    tried_us: float

    def us(self, tried: float) -> float:
        """CPU microseconds of one write that tries so many predicates."""
        return self.read_us + self.tried_us * tried

    def ratios(self, points: Sequence[CellPoint]) -> list[float]:
        """Calculated over measured, of each point."""
        return [self.us(point.tried) / point.us for point in points]

    def spread(self, points: Sequence[CellPoint]) -> dict[str, float]:
        """The least, the median and the greatest of these ratios."""
        ratios = self.ratios(points)
        return {
            "least": round(min(ratios), 3),
            "median": round(statistics.median(ratios), 3),
            "most": round(max(ratios), 3),
        }

    def writes_per_s(self, query_partitions: int, write_partitions: int, *, unindexed: int, share: float) -> float:
        """Writes/s to the whole grid at which each cell uses this share of a core."""
        return share * 1e6 * write_partitions / self.us(unindexed / query_partitions)


def cell_points(measured: Sequence[Mapping[str, Any]]) -> list[CellPoint]:
    """Every cell of the points of a result."""
    return [
        CellPoint(
            query_partitions=int(point["grid"].split("x")[0]),
            write_partitions=int(point["grid"].split("x")[1]),
            tried=cell["tried_per_write"],
            us=cell["us_per_write"],
        )
        for point in measured
        for cell in point["cells"]
    ]


def fitted(points: Sequence[CellPoint]) -> CellModel:
    """The model with the least squares of relative deviations: a cell of a large grid has little to do, and counts as much."""
    read, tried = constants([[1.0, point.tried] for point in points], [point.us for point in points])
    return CellModel(read_us=read, tried_us=tried)


def constants(factors: Sequence[Sequence[float]], costs: Sequence[float]) -> list[float]:
    """The constant of each factor, with the least squares of relative deviations from the costs."""
    measured = np.array(costs)
    solved, *_ = np.linalg.lstsq(np.array(factors) / measured[:, None], np.ones(len(measured)), rcond=None)
    return [float(constant) for constant in solved]
