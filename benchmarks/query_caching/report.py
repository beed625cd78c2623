"""The result of benchmarks/quaestor_fig58.py as a document and as plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.query_caching.figures import AIMS, BUCKETS_MS, LATE_MS
from benchmarks.query_caching.load import LAYERS

_COLOURS: Final = {"uncached": "black", "CDN": "C2", "full": "C0"}


def text(result: Mapping[str, Any]) -> str:
    """Tables with their conditions, measured and predicted beside each other."""
    setups, connections = result["setups"], [step["connections"] for step in result["over_uncached"]]
    full = setups["full"][-1]
    return "\n".join(
        [
            "# Query caching over distance",
            "",
            f"{result['what']} Counted for {result['seconds']:g} s with each number of connections, after "
            f"{result['settle_s']:g} s of the same load. {result['beside_the_app']}; "
            f"{result['cores']} cores for everything; Δ = {result['delta_s']} s.",
            "",
            "Set-ups: uncached, 150 ms to the application; CDN, 4 ms to Varnish and 146 ms behind it; full, the same with ten "
            "client machines that keep answers and load the Cache Sketch.",
            "",
            "## Over uncached",
            "",
            "| connections | CDN: lower mean latency (aim 7), throughput (aim 5) | full: lower mean latency (aim 30), throughput "
            "(aim 11) |",
            "|---|---|---|",
            *(
                f"| {row['connections']} | "
                + " | ".join(
                    f"{row[aim]['lower_mean_latency']}x, {row[aim]['throughput']}x{_missed(row[aim])}" for aim in AIMS
                )
                + " |"
                for row in result["over_uncached"]
            ),
            "",
            "## Measured, and predicted by the simulator",
            "",
            "| set-up | connections | reads/s | mean ms | p50 ms | p99 ms | browser, CDN, app, database % | stale % | "
            "stalest s | limited by |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *(line for name, ones in setups.items() for step in ones for line in _lines(name, step)),
            "",
            "A part that used 95 % of its core, or all parts together of the machine, is the limit, and so are clients that come "
            f"{LATE_MS:g} ms late to what is due: figures of that line are its figures, not the set-up's. "
            "Waiting for a processor is not simulated.",
            "",
            f"## Latency of the full set-up, {connections[-1]} connections",
            "",
            "| up to ms | reads |",
            "|---|---|",
            *(f"| {bucket} | {count:,} |" for bucket, count in full["histogram_ms"].items()),
            "",
            "## Service times that the simulator was given",
            "",
            "| set-up | " + " | ".join(result["service_times"]["full"]) + " |",
            "|---" * (1 + len(result["service_times"]["full"])) + "|",
            *(
                f"| {name} | " + " | ".join(str(times.get(kind, "")) for kind in result["service_times"]["full"]) + " |"
                for name, times in result["service_times"].items()
            ),
            "",
            "Latencies are medians and spreads in ms, without load.",
            "",
        ]
    )


def _missed(row: Mapping[str, Any]) -> str:
    return "" if all(row["aims_held"].values()) else " (missed)"


def _lines(setup: str, step: Mapping[str, Any]) -> Sequence[str]:
    said, off = step["simulator"], step["simulator_off_by"]
    missed = [name for name, held in off["aims_held"].items() if not held]
    verdict = f"off: {', '.join(missed)}" if missed else "within the aims"
    limited = ", ".join(step["limited_by"])
    return (
        f"| {setup} | {step['connections']} | {_row(step)} | {limited} |",
        f"| ... predicted | | {_row(said)} | {verdict} |",
    )


def _row(step: Mapping[str, Any]) -> str:
    layers = ", ".join(f"{100 * step['layers'][layer]:.1f}" for layer in LAYERS)
    return (
        f"{step['throughput_hz']:,.0f} | {step['mean_ms']:.2f} | {step['p50_ms']:.2f} | {step['p99_ms']:.1f} | {layers} | "
        f"{100 * step['stale']:.2f} | {step['stale_max_s']:.1f}"
    )


def draw(path: Path, result: Mapping[str, Any]) -> None:
    """Write the plots: mean latency, throughput, histogram. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaestor"
    from matplotlib import pyplot

    figure, (latency, throughput, histogram) = pyplot.subplots(1, 3, figsize=(14, 4))
    for name, ones in result["setups"].items():
        connections = [step["connections"] for step in ones]
        for axes, what in ((latency, "mean_ms"), (throughput, "throughput_hz")):
            axes.plot(connections, [step[what] for step in ones], marker="o", color=_COLOURS[name], label=name)
            axes.plot(
                connections, [step["simulator"][what] for step in ones],
                linestyle="--", linewidth=1, color=_COLOURS[name], label=f"{name}, simulator",
            )  # fmt: skip
            limited = [(step["connections"], step[what]) for step in ones if step["limited_by"]]
            if limited:
                axes.scatter(*zip(*limited, strict=True), s=120, facecolors="none", edgecolors="red", zorder=3)
    latency.set(xlabel="connections", ylabel="mean latency, ms", yscale="log", title="Mean latency")
    throughput.set(xlabel="connections", ylabel="reads/s", yscale="log", title="Throughput (red: no processor left)")
    latency.legend(fontsize="x-small")
    full = result["setups"]["full"][-1]
    names = [f"≤ {bucket}" for bucket in BUCKETS_MS] + [f"> {BUCKETS_MS[-1]}"]
    histogram.bar(names, list(full["histogram_ms"].values()), color=_COLOURS["full"])
    histogram.tick_params(axis="x", rotation=60, labelsize="small")
    histogram.set(ylabel="reads", xlabel="latency, ms", yscale="log", title=f"full, {full['connections']} connections")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
