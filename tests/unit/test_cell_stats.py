"""Statistics that cells publish: found for the running grid among the data of other grids."""

from __future__ import annotations

from dataclasses import replace

import bson
import pytest

from quaestor.event_layer import streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.cell_meter import CellMeter
from quaestor.invalidation.grid.cell_stats import (
    CellStats,
    TenantStats,
    cell_stats,
    decode_stats,
    encode_stats,
)
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Cell, GridShape

ONE = GridShape(query_partitions=1, write_partitions=1)
TWO = GridShape(query_partitions=1, write_partitions=2)
STATS = CellStats(
    cell=Cell(query_partition=0, write_partition=0),
    shape=ONE,
    at_ms=1_700_000_000_000,
    queries=2,
    registrations=3,
    bytes=2**33,
    writes=2**40,
    tried=5,
    failed=1,
    evicted=7,
    writes_per_s=10.5,
    tried_per_write=0.25,
    lag_p50_ms=1.0,
    lag_p99_ms=20.0,
    rss_bytes=2**31,
    tenants=(TenantStats(tenant="shop", registrations=3, bytes=900, tried_per_s=1.5, failed=2),),
)


def test_statistics_survive_their_encoding() -> None:
    assert decode_stats(encode_stats(STATS)) == STATS


@pytest.mark.parametrize("value", [b"", b"junk", bson.encode({"v": 2}), bson.encode({"v": 1, "cell": 3})])
def test_unreadable_statistics_are_ignored(value: bytes) -> None:
    assert decode_stats(value) is None


def test_the_cells_of_the_running_grid_are_found_and_no_others() -> None:
    """After a resize the values of the grid before still lie there."""
    layer = MemoryEventLayer()
    assert cell_stats(layer, "d") == []
    cells = [Cell(query_partition=0, write_partition=number) for number in range(2)]
    for cell in cells:
        layer.put(streams.stats("d", cell), encode_stats(replace(STATS, cell=cell, shape=TWO)))
    assert [stats.cell for stats in cell_stats(layer, "d")] == cells
    layer.put(streams.stats("d", cells[0]), encode_stats(replace(STATS, shape=ONE)))
    assert [stats.shape for stats in cell_stats(layer, "d")] == [ONE]


def test_where_a_grid_was_started_its_shape_counts() -> None:
    layer = MemoryEventLayer()
    grid = {"v": 1, "run": "r", "shape": [1, 2], "stopped": False}
    layer.put(streams.grid("d"), bson.encode(grid))
    second = Cell(query_partition=0, write_partition=1)
    layer.put(streams.stats("d", second), encode_stats(replace(STATS, cell=second, shape=TWO)))
    assert [stats.cell for stats in cell_stats(layer, "d")] == [second]


def test_a_meter_measures_periods() -> None:
    node = MatchingNode(STATS.cell, ONE, retention_ms=60_000)
    meter = CellMeter()
    for lag_ms in range(1, 101):
        meter.matched(wall_ms=1_000, now_ms=1_000 + lag_ms)
    first, second = meter.take(node, now_ms=1), meter.take(node, now_ms=2)
    assert (first.lag_p50_ms, first.lag_p99_ms) == (51.0, 100.0)
    assert (second.lag_p50_ms, second.lag_p99_ms) == (-1.0, -1.0)


def test_a_period_with_very_many_writes_takes_bounded_memory() -> None:
    meter = CellMeter()
    for _ in range(30_000):
        meter.matched(wall_ms=1, now_ms=2)
    assert len(meter._lags_ms) == 10_000
