"""Rows of queries over versioned tables: continuous queries beside the full query, and runs of channels."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.figure_rows.results import Result, Row, count, result

SIZES = {"duckdb": (380_000, 3_800_000, 38_000_000), "spark": (380_000, 3_800_000)}
"""Numbers of messages, by executor."""
ENGINES = {"duckdb": "DuckDB", "spark": "Spark in one process"}
LEAST_NEW = -1
"""Position of the smallest share of new messages."""


def continuous() -> list[Row]:
    """Return a row for each executor and size: the incremental query of five, with the least new messages, beside the full."""
    return [
        _size(result(f"tapestry_{size}_{executor}", run=f"tapestry --messages {size} --executor {executor} --keep"))
        for executor, sizes in SIZES.items()
        for size in sizes
    ]


def _size(measured: Result) -> Row:
    queries, floor_s = measured["queries"], measured["floor"]["s"]
    new = next(iter(queries.values()))["single"][LEAST_NEW]["new"]
    took = {name: query["single"][LEAST_NEW]["s"] for name, query in queries.items()}
    slow = [name for name, seconds in took.items() if seconds > 1.5 * floor_s]
    return (
        f"continuous queries over {measured['messages']:,} messages, {new:.1%} of them new, "
        + ENGINES[measured["executor"]],
        ", ".join(f"{name} {count(1_000 * seconds)}" for name, seconds in took.items()) + " ms",
        "the full queries "
        + ", ".join(count(1_000 * query["full"]["s"]) for query in queries.values())
        + f" ms; a query over one empty file {count(1_000 * floor_s)} ms. Aim: 1.5 times that; missed by "
        + (", ".join(slow) or "none"),
    )


def _in_turn(figures: Iterable[str]) -> str:
    *first, last = figures
    return f"{', '.join(first)} and {last}"


def channels() -> list[Row]:
    """Return the rows of channels: runs with 50 million subscribers, and GOOD beside them."""
    single, *grouped = (
        result(
            f"bad_channels_local_50000000_{name}",
            run=f"bad_channels --subscribers 50000000 --rate 800 {options} --keep",
        )
        for name, options in (
            ("50000_800_individual", "--areas 50000 --individual"),
            ("300_800_grouped", "--areas 300"),
            ("1000_800_grouped", "--areas 1000"),
            ("50000_800_grouped", "--areas 50000"),
        )
    )
    beside = result("bad_vs_good_150000_1000_80", run="bad_vs_good --keep")
    return [
        (
            f"a run of a channel: {single['setup']['subscribers']:,} single subscribers, {single['areas']:,} areas, "
            f"{single['setup']['rate']} tweets/s arrive beside it, period {single['period_s']:.0f} s",
            f"{single['median']['total_s']:.2f} s for {single['median']['results']:,.0f} results",
            f"the slowest of {len(single['runs'])} runs {max(run['total_s'] for run in single['runs']):.2f} s; "
            f"{single['peak_memory_mb'] / 1_000:.1f} GB; a new process reads its subscriptions in {single['start_s']:.0f} s",
        ),
        (
            "the same with groups, " + _in_turn(f"{groups['areas']:,}" for groups in grouped) + " areas",
            _in_turn(f"{groups['median']['total_s']:.2f}" for groups in grouped)
            + " s for "
            + _in_turn(f"{groups['median']['results']:,.0f}" for groups in grouped)
            + " results of groups",
            "the slowest of "
            + _in_turn(str(len(groups["runs"])) for groups in grouped)
            + " runs "
            + _in_turn(f"{max(run['total_s'] for run in groups['runs']):.2f}" for groups in grouped)
            + " s; "
            + _in_turn(f"{groups['peak_memory_mb'] / 1_000:.1f}" for groups in grouped)
            + " GB",
        ),
        (
            f"a run of a channel: {beside['setup']['subscribers']:,} single subscribers, {beside['areas']:,} areas, "
            f"{beside['setup']['rate']} tweets/s",
            f"{1_000 * beside['channels']['median']['total_s']:.0f} ms",
            f"Spark, MongoDB and a stream put together (GOOD) {1_000 * beside['good']['total_s']:,.0f} ms: "
            f"{beside['good_to_channels']:.0f} times as long (aim: 10). With subscriptions that Spark keeps, and so without new "
            f"ones: {beside['good_cached_to_channels']:.1f} times. With Delta tables in MongoDB's place (GOOD-Lake) "
            f"{1_000 * beside['good_lake']['total_s']:,.0f} ms: {beside['good_lake_to_channels']:.1f} times. GOOD reads by "
            "Python, because no JVM connector is to be had",
        ),
    ]
