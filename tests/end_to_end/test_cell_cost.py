"""The benchmark of a cell's cost gives every cell exactly its part of the work, and counts all of it."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from benchmarks import cell_cost
from benchmarks.cell_cost import Work
from benchmarks.scalability import cell_report, plots
from benchmarks.scalability.drained import drained
from quaestor.model import GridShape

SMALL = {"RANGES": 60, "UNINDEXED": 20, "RANGES_WRITES": 200, "UNINDEXED_WRITES": 100, "ROUNDS": 2, "ALONE": 20}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads of a second instead of minutes."""
    for name, value in SMALL.items():
        monkeypatch.setattr(cell_cost, name, value)


def test_each_write_is_read_by_one_column_and_tries_the_queries_of_each_row_once(redis_url: str, prefix: str) -> None:
    work = Work(shape=GridShape(query_partitions=2, write_partitions=2), queries=2, writes=2)
    experiments = count(1)
    with drained(redis_url, prefix, work.shape) as grid:
        filled = grid.hold(cell_cost.ranges(0, 120))
        assert sum(cell.entries for cell in filled) == 2 * 120
        unindexed = grid.hold(cell_cost.unindexed(120, 40))
        assert sum(cell.entries for cell in unindexed) == 2 * 40
        before = {cell.cell: cell.held for cell in unindexed}
        tried = {cell.cell: cell.entries for cell in unindexed}
        cells = cell_cost.rounds_of(grid, work, experiments, with_unindexed=True)
        assert sum(grid.published) == 2 * 200
    for row in range(2):
        assert sum(cell.entries for cell in cells if cell.cell.query_partition == row) == pytest.approx(200, abs=1)
    for cell in cells:
        assert cell.cpu_s > 0
        # A measured query that is matched, or lies in the way of the index, is tried too: one in a hundred writes.
        assert cell.tried / cell.entries == pytest.approx(tried[cell.cell], abs=0.5)
        # Of the measured queries each fired in one cell, and is still held by the other of its row.
        assert before[cell.cell] <= cell.held <= before[cell.cell] + 2 * 2


def test_a_write_that_comes_alone_is_counted_alone(redis_url: str) -> None:
    assert cell_cost.alone(redis_url) > 0


def test_result_document_and_plot_are_made_from_what_was_measured(redis_url: str, prefix: str, tmp_path: Path) -> None:
    """Both views, the model with its residuals, the extrapolation, and the Spark row beside its twin."""
    points = []
    for number, (queries, writes) in enumerate(((1, 1), (4, 1), (1, 4), (4, 4))):
        shape = GridShape(query_partitions=queries, write_partitions=writes)
        measured, registering_us = cell_cost.measure(
            redis_url, Work(shape=shape, queries=queries, writes=writes), f"{prefix}-{number}"
        )
        points += measured
    spark = [{**points[-1], "over_drained": 1.1}]
    result = {
        "what": "CPU us",
        "model": cell_cost.modelled(points, registering_us=registering_us, alone_us=50.0),
        "on_spark": spark,
        "points": points,
    }
    document = cell_report.text(json.loads(json.dumps(result)))
    for part in ("| 4x4 |", "Equal load per cell", "Equal load in all", "Calculated, not measured", "| 16x16 |"):
        assert part in document
    assert plots.draw_cell_cost(tmp_path, result).read_text().startswith("<?xml")


def test_both_views_share_the_largest_grid() -> None:
    works = cell_cost.works()
    assert len(works) == 2 * 9 - 1
    assert [work.name for work in works if work.per_cell and work.in_all] == ["4x4"]
    assert all(work.per_cell or work.in_all for work in works)
