"""The papers' figures 4 and 5, and latency by load, as SVG drawn from the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.scalability.experiment import BOUNDS_MS, Point


def draw(folder: Path, result: dict[str, Any]) -> list[Path]:
    """Write the plots of one result; returns their paths. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaestor"
    return [
        _sustained(
            folder / "invalidb_read_scalability.svg",
            result["read_scalability"],
            "Active queries sustained at 1,000 writes/s",
            "active queries",
        ),
        _sustained(
            folder / "invalidb_write_scalability.svg",
            result["write_scalability"],
            "Writes/s sustained with 1,000 active queries",
            "writes/s",
        ),
        _latency(folder / "invalidb_latency.svg", result["points"], result["bare_redis"]["round_trips"]),
    ]


def _sustained(path: Path, grids: dict[str, dict[str, int]], title: str, unit: str) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    width = 0.8 / len(BOUNDS_MS)
    for place, bound in enumerate(BOUNDS_MS):
        heights = [loads[f"{bound} ms"] for loads in grids.values()]
        axes.bar([n + place * width for n in range(len(grids))], heights, width, label=f"p99 below {bound} ms")
    for n, loads in enumerate(grids.values()):
        label = "most that was tried" if n == 0 else None
        axes.hlines(loads["tried"], n - width / 2, n + 0.8 - width / 2, linestyle=":", color="black", label=label)
    axes.set_xticks([n + 0.4 - width / 2 for n in range(len(grids))], list(grids))
    axes.set(xlabel="grid (query x write partitions)", ylabel=unit, title=title, yscale="log")
    axes.set_ylim(bottom=100)
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)
    return _save(figure, path)


def _latency(path: Path, points: list[Point], bare: dict[str, dict[str, float]]) -> Path:
    from matplotlib import pyplot

    figure, (by_queries, by_rate) = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    mine = [point for point in points if point["collections"] == 1 and "what" not in point and point["p99_ms"] < 1e9]
    for name in dict.fromkeys((point["kind"], point["grid"]) for point in mine):
        of = [point for point in mine if (point["kind"], point["grid"]) == name]
        for axes, fixed, value, by in (
            (by_queries, "writes_per_s", 1_000, "queries"),
            (by_rate, "queries", 1_000, "writes_per_s"),
        ):
            best: dict[int, float] = {}
            for point in of:
                if point[fixed] == value:
                    best[point[by]] = min(point["p99_ms"], best.get(point[by], point["p99_ms"]))
            if len(best) > 1:
                axes.plot(*zip(*sorted(best.items()), strict=True), marker="o", label=f"{name[1]} ({name[0]})")
    rates = sorted((int(rate), figures["p99_ms"]) for rate, figures in bare.items())
    by_rate.plot(*zip(*rates, strict=True), color="grey", linestyle="--", marker=".", label="bare Redis")
    by_queries.set(
        xlabel="active queries, at 1,000 writes/s", ylabel="p99 notification latency (ms)", xscale="log", yscale="log"
    )
    by_rate.set(xlabel="writes/s, with 1,000 active queries", xscale="log")
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
