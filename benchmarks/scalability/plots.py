"""The papers' figures 4 and 5, latency by load, and what a cell's work costs, as SVG drawn from the results.

Bars say what a grid sustained. Where that is the largest load that was put to the test, they are hatched: the limit lies higher,
and was not looked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.scalability.experiment import BOUNDS_MS, Point


def draw(folder: Path, result: dict[str, Any]) -> list[Path]:
    """Write the plots of one result of invalidb_scalability; returns their paths. Raises ImportError without matplotlib."""
    _prepare()
    load = result.get("fixed_load", {})
    return [
        _sustained(
            folder / "invalidb_read_scalability.svg",
            result["read_scalability"],
            f"Active queries sustained at {load.get('writes', '1,000 writes/s')}",
            "active queries",
        ),
        _sustained(
            folder / "invalidb_write_scalability.svg",
            result["write_scalability"],
            f"Writes/s sustained with {load.get('queries', '1,000 active queries')}",
            "writes/s",
        ),
        _latency(
            folder / "invalidb_latency.svg",
            result["points"],
            result["bare_redis"]["round_trips"],
            per_partition=bool(load),
        ),
    ]


def draw_cell_cost(folder: Path, result: dict[str, Any]) -> Path:
    """Write the plot of one result of cell_cost; returns its path. Raises ImportError without matplotlib."""
    _prepare()
    from matplotlib import pyplot

    model = result["model"]
    figure, views = pyplot.subplots(1, 2, figsize=(11, 4))
    for axes, view, title in (
        (views[0], "equal_load_per_cell", "Equal load per cell"),
        (views[1], "equal_load_in_all", "Equal load in all"),
    ):
        for unindexed, colour, label in ((False, "C0", "ranges"), (True, "C1", "and queries without an index")):
            points = [
                point for point in result["points"] if point[view] and bool(point["queries_without_index"]) == unindexed
            ]
            points.sort(key=lambda point: (_cells(point["grid"]), point["grid"]))
            names = [point["grid"] for point in points]
            used = [point["us_of_a_cell_per_write_of_the_grid"] * point["writes"] / 1e3 for point in points]
            calculated = [
                point["writes"] / _write_partitions(point["grid"]) / 1e3
                * (model["read_us"] + model["tried_us"] * point["us_per_write_of_a_cell"]["tried"])
                for point in points
            ]  # fmt: skip
            axes.plot(names, used, marker="o", linestyle="", color=colour, label=f"{label}, measured")
            axes.plot(names, calculated, linestyle="--", linewidth=1, color=colour, label=f"{label}, the model")
        axes.set(xlabel="grid (query x write partitions)", ylabel="CPU ms of a cell", title=title, yscale="log")
        axes.legend(fontsize="x-small")
    return _save(figure, folder / "cell_cost.svg")


def _prepare() -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaestor"


def _cells(grid: str) -> int:
    queries, writes = map(int, grid.split("x"))
    return queries * writes


def _write_partitions(grid: str) -> int:
    return int(grid.split("x")[1])


def _sustained(path: Path, grids: dict[str, dict[str, int]], title: str, unit: str) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    width = 0.8 / len(BOUNDS_MS)
    for place, bound in enumerate(BOUNDS_MS):
        for n, loads in enumerate(grids.values()):
            no_limit = loads[f"{bound} ms"] >= loads["tried"]
            axes.bar(
                n + place * width, loads[f"{bound} ms"], width, color=f"C{place}", edgecolor="black", linewidth=0.3,
                hatch="///" if no_limit else None, label=None if n else f"p99 below {bound} ms",
            )  # fmt: skip
    axes.bar(0, 0, width, color="white", edgecolor="black", linewidth=0.3, hatch="///", label="no more was tried")
    axes.set_xticks([n + 0.4 - width / 2 for n in range(len(grids))], list(grids))
    axes.set(xlabel="grid (query x write partitions)", ylabel=unit, title=title, yscale="log")
    axes.set_ylim(bottom=100)
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)
    return _save(figure, path)


def _latency(path: Path, points: list[Point], bare: dict[str, dict[str, float]], *, per_partition: bool) -> Path:
    from matplotlib import pyplot

    figure, (by_queries, by_rate) = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    mine = [point for point in points if point["collections"] == 1 and "what" not in point and point["p99_ms"] < 1e9]
    for name in dict.fromkeys((point["kind"], point["grid"]) for point in mine):
        of = [point for point in mine if (point["kind"], point["grid"]) == name]
        partitions = tuple(map(int, name[1].split("x"))) if per_partition else (1, 1)
        for axes, fixed, value, by in (
            (by_queries, "writes_per_s", 1_000 * partitions[1], "queries"),
            (by_rate, "queries", 1_000 * partitions[0], "writes_per_s"),
        ):
            best: dict[int, float] = {}
            for point in of:
                if point[fixed] == value:
                    best[point[by]] = min(point["p99_ms"], best.get(point[by], point["p99_ms"]))
            if len(best) > 1:
                axes.plot(*zip(*sorted(best.items()), strict=True), marker="o", label=f"{name[1]} ({name[0]})")
    rates = sorted((int(rate), figures["p99_ms"]) for rate, figures in bare.items())
    by_rate.plot(*zip(*rates, strict=True), color="grey", linestyle="--", marker=".", label="bare Redis")
    writes, queries = (" for each write partition", " for each query partition") if per_partition else ("", "")
    by_queries.set(
        xlabel=f"active queries, at 1,000 writes/s{writes}",
        ylabel="p99 notification latency (ms)",
        xscale="log",
        yscale="log",
    )
    by_rate.set(xlabel=f"writes/s, with 1,000 active queries{queries}", xscale="log")
    for axes in (by_queries, by_rate):
        for bound in BOUNDS_MS:
            axes.axhline(bound, linewidth=0.5, color="lightgrey")
        axes.legend(fontsize="x-small")
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path
