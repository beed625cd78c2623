"""The model of a cell's work reproduces its fitted measurements, and predicts larger grids from its two costs."""

from __future__ import annotations

import pytest

from benchmarks.scalability.cell_model import CellModel, CellPoint, fitted


def points(model: CellModel, unindexed: int) -> list[CellPoint]:
    """Cells of grids up to 4x4 that cost exactly what the model says."""
    return [
        CellPoint(
            query_partitions=queries,
            write_partitions=writes,
            tried=unindexed / queries,
            us=model.us(unindexed / queries),
        )
        for queries in (1, 2, 4)
        for writes in (1, 2, 4)
    ]


def test_the_two_costs_are_found_again() -> None:
    made = CellModel(read_us=25.0, tried_us=1.5)
    model = fitted([*points(made, 0), *points(made, 800)])
    assert model.read_us == pytest.approx(25.0)
    assert model.tried_us == pytest.approx(1.5)
    assert model.ratios(points(made, 400)) == pytest.approx([1.0] * 9)


def test_deviations_are_relative_so_that_cheap_cells_count_as_much_as_dear_ones() -> None:
    model = CellModel(read_us=20.0, tried_us=1.0)
    dearer = CellPoint(query_partitions=1, write_partitions=1, tried=30.0, us=100.0)
    assert model.ratios([dearer]) == [0.5]
    cheap = [CellPoint(query_partitions=1, write_partitions=1, tried=0, us=us) for us in (9.0, 11.0)]
    dear = [CellPoint(query_partitions=1, write_partitions=1, tried=1, us=us) for us in (900.0, 1_100.0)]
    results = fitted([*cheap, *dear])
    assert results.ratios(cheap) == pytest.approx(results.ratios(dear), rel=0.01)


def test_write_partitions_multiply_the_writes_and_query_partitions_only_divide_what_is_tried() -> None:
    model = CellModel(read_us=20.0, tried_us=1.0)
    predicted = model.writes_per_s(1, 1, unindexed=0, share=0.5)
    assert predicted == pytest.approx(25_000)
    assert model.writes_per_s(1, 4, unindexed=0, share=0.5) == pytest.approx(4 * predicted)
    assert model.writes_per_s(4, 1, unindexed=0, share=0.5) == pytest.approx(predicted)
    assert model.writes_per_s(4, 4, unindexed=80, share=0.5) == pytest.approx(4 * 0.5e6 / 40)
