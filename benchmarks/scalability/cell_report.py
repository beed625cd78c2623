"""The result of benchmarks/cell_cost.py as a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text(result: Mapping[str, Any]) -> str:
    """Two tables, the model, what it says, and what it leaves out."""
    model, points = result["model"], result["points"]
    small = next(value for name, value in model.items() if name.startswith("fitted_to_shapes"))
    off = small["calculated_over_measured_of_the_larger"]
    lines = [
        "# What a write costs a cell",
        "",
        f"{result['what']}. CPU time, not throughput: it tells of cells with a core each, which this machine does not have for "
        "all of them.",
        "",
        *_table("Equal load per cell: what a cell uses should not change", points, "equal_load_per_cell"),
        *_table("Equal load in all: what a cell uses should fall", points, "equal_load_in_all"),
        "With ranges alone a cell's work falls with the write partitions only: an index finds them, whatever their number is, "
        "and each write is read by every query partition. So query partitions pay where predicates are tried, and where memory "
        "or registrations are the limit. Work of all cells together grows with the query partitions: the last column.",
        "",
        "## The model",
        "",
        f"CPU time of a cell for a write that it reads = {model['read_us']} us + {model['tried_us']} us x predicates tried; it "
        "reads 1/W of the writes and tries 1/Q of the queries that no index finds.",
        "",
        f"- Fitted to {model['cells_fitted']} cells; calculated over measured: {_spread(model['calculated_over_measured'])}.",
        f"- Fitted to the shapes up to 2x2 only ({small['read_us']} us, {small['tried_us']} us), it says of the larger ones "
        f"{_spread(off)} times what was measured: how far an extrapolation by 2 in each dimension is off.",
        f"- Registering a query costs each of its W cells {model['registering_us_per_cell']} us: more write partitions make it "
        "dearer.",
        "- Left out: waking up. A write that comes alone costs a cell "
        f"{model['us_of_a_write_that_wakes_the_cell_alone']} us instead; under load many come at once.",
        "",
        "## Calculated, not measured",
        "",
        f"Writes/s; {model['calculated_with']}.",
        "",
        *_calculated(model["writes_per_s_calculated"]),
        "",
        "## Beside it on Spark",
        "",
        "| grid | queries without an index | us of a cell per write of the grid, as Spark tasks | over the drained processes |",
        "|---|---|---|---|",
        *(
            f"| {row['grid']} | {row['queries_without_index']:,} | {row['us_of_a_cell_per_write_of_the_grid']} | "
            f"{row['over_drained']} |"
            for row in result["on_spark"]
        ),
        "",
    ]
    return "\n".join(lines)


def _table(title: str, points: list[Mapping[str, Any]], view: str) -> list[str]:
    return [
        f"## {title}",
        "",
        "| grid | ranges | without an index | writes | CPU ms of a cell (mean) | us of a cell per write of the grid | "
        "... of all cells |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row['grid']} | {row['ranges']:,} | {row['queries_without_index']:,} | {row['writes']:,} | "
            f"{row['us_of_a_cell_per_write_of_the_grid'] * row['writes'] / 1e3:.0f} | "
            f"{row['us_of_a_cell_per_write_of_the_grid']} | {row['us_of_all_cells_per_write_of_the_grid']} |"
            for indexed in (True, False)
            for row in points
            if row[view] and (not row["queries_without_index"]) == indexed
        ),
        "",
    ]


def _calculated(grids: Mapping[str, Mapping[str, float]]) -> list[str]:
    kinds = list(next(iter(grids.values())))
    return [
        f"| grid | {' | '.join(kinds)} |",
        f"|---|{'---|' * len(kinds)}",
        *(f"| {name} | {' | '.join(f'{rates[kind]:,}' for kind in kinds)} |" for name, rates in grids.items()),
    ]


def _spread(ratios: Mapping[str, float]) -> str:
    return f"{ratios['least']} to {ratios['most']}, median {ratios['median']}"
