"""Rows of the matching grid: latency, what a node and a grid sustain, what a write costs a cell."""

from __future__ import annotations

from benchmarks.figure_rows.results import Result, Row, count, result


def latency() -> list[Row]:
    """From the acknowledged write to its effects, at each load."""
    rows: list[Row] = []
    for load in result("invalidation_latency")["loads"]:

        def of(what: str, load: Result = load) -> str:
            return f"{load[what]['p50_ms']:.1f} / {load[what]['p99_ms']:.0f} ms"

        rows.append(
            (
                f"from the acknowledged write at {load['writes_per_s_asked']:,} writes/s, p50 / p99 (2 x 2 grid, one app worker)",
                f"no longer served {of('no_longer_served')}; evicted {of('evicted')}; purged from Varnish "
                f"{of('varnish_purged')}",
                f"a bare change stream has a p99 of {load['bare_change_stream']['p99_ms']:.1f} ms; ours are "
                f"{load['no_longer_served_p99_over_bare']:.0f}, {load['evicted_p99_over_bare']:.0f} and "
                f"{load['purged_p99_over_bare']:.0f} times that (aim: 3)",
            )
        )
    return rows


def bursts() -> list[Row]:
    """Return the rows of bursts: how late answers of other collections are, and how fast one ingest is."""
    late, rate = result("burst_latency"), result("ingest_rate")

    def latest(reader: str, burst: str) -> str:
        return f"{late[f'{reader}, {burst}']['latest_ms']:,}"

    def of(writes: str, reader: str = "ingest, 1 write partitions") -> str:
        return count(rate[writes][reader]["writes_a_second"])

    return [
        (
            "`update_many` of 50,000 records; a transaction of 10,000: the latest answer of another collection, median of three",
            f"embedded {latest('embedded', 'update_many')} and {latest('embedded', 'transaction')} ms; elected grid "
            f"{latest('elected grid', 'update_many')} and {latest('elected grid', 'transaction')} ms",
            f"a bare change stream {latest('bare stream', 'update_many')} and {latest('bare stream', 'transaction')} ms; "
            "aim: 250 ms",
        ),
        (
            f"one ingest, {rate['writes']:,} writes at once, from MongoDB into Valkey",
            f"inserts {of('inserts')}/s; updates without post-images {of('updates, looked up')}/s, with images "
            f"{of('updates with images')}/s",
            f"a bare change stream {of('inserts', 'bare stream')}, {of('updates, looked up', 'bare stream')} and "
            f"{of('updates with images', 'bare stream')}/s",
        ),
    ]


def matching() -> list[Row]:
    """Return the rows of one node's matching, by workload."""
    workloads = result("matching")["workloads"]

    def at(workload: str, queries: int) -> str:
        return next(count(row["writes_per_s"]) for row in workloads[workload]["node"] if row["queries"] == queries)

    most = max(int(row["queries"]) for row in workloads["papers"]["node"])
    return [
        (
            "writes that one core matches against 100,000 cached queries (one matching node, CPU time)",
            f"ranges {at('papers', 100_000)}/s; a mix that indexes find {at('indexed', 100_000)}/s",
            f"a mix with 10 % of queries that no index finds: {at('mixed', 100_000)}/s; with 1,000 queries in all "
            f"{at('mixed', 1_000)}/s. A node keeps at most 5,000 queries without an index per namespace",
        ),
        (
            f"cost of a write with {most:,} queries, over its cost with 1,000",
            f"ranges {workloads['papers']['growth']:.2f}; a mix that indexes find {workloads['indexed']['growth']:.2f}",
            f"the mix with 10 % of queries that no index finds: {count(workloads['mixed']['growth'])}",
        ),
    ]


def sustained() -> list[Row]:
    """Return the rows of sustained loads of the grid on Spark, by shape."""
    measured = result("invalidb_scalability")
    highest = {
        shape: f"{loads['20 ms']:,}" for shape, loads in measured["write_scalability"].items() if "(" not in shape
    }
    most = max((row for row in measured["table_3"] if row["grid"] == "1x1"), key=lambda row: float(row["queries"]))
    bare = measured["bare_redis"]["round_trips"]["1000"]
    mongo = [
        f"{load['p99_ms']:.0f} ms at {load['writes_per_s']:,} writes/s with {load['queries']:,} queries"
        for load in measured["from_mongodb"]
    ]
    queries = measured.get("fixed_load", {}).get("queries", "1,000 queries")
    return [
        (
            f"the grid on Spark (1 x 1), from the write in its pipeline to the notification: {most['queries']:,} queries, "
            f"{most['writes_per_s']:,} writes/s",
            f"p50 {most['p50_ms']:.1f} ms, p99 {most['p99_ms']:.1f} ms",
            f"a bare Redis round trip: p50 {bare['p50_ms']:.2f} ms, p99 {bare['p99_ms']:.1f} ms. "
            f"Registering the queries took {most['registering_s']:.0f} s",
        ),
        (
            f"the grid on Spark, highest write rate with a p99 under 20 ms, {queries}; all parts share the cores of one machine",
            ", ".join(f"{shape.replace('x', ' x ')}: {rate}/s" for shape, rate in highest.items()),
            "more cells than cores gain nothing on one machine",
        ),
        (
            "the grid on Spark (1 x 1), from the acknowledged write in MongoDB, p99",
            mongo[0],
            "; ".join(mongo[1:]),
        ),
    ]


def cells() -> list[Row]:
    """Return the rows of a write's cost for one cell, by the shape of its grid."""
    measured = result("cell_cost")
    points, model = measured["points"], measured["model"]

    def used(grid: str, view: str, *, unindexed: bool) -> float:
        point = next(
            point
            for point in points
            if point["grid"] == grid and point[view] and bool(point["queries_without_index"]) == unindexed
        )
        return float(point["us_of_a_cell_per_write_of_the_grid"]) * float(point["writes"])

    def fall(grid: str, *, unindexed: bool) -> str:
        view = "equal_load_in_all"
        return f"{used(grid, view, unindexed=unindexed) / used('1x1', view, unindexed=unindexed):.2f}"

    def kept(*, unindexed: bool) -> str:
        view = "equal_load_per_cell"
        return f"{used('4x4', view, unindexed=unindexed) / used('1x1', view, unindexed=unindexed):.2f}"

    return [
        (
            "CPU time of one cell of a 4 x 4 grid, over one of a 1 x 1 grid; some queries have no index",
            f"same load in all {fall('4x4', unindexed=True)}; same load per cell {kept(unindexed=True)}",
            f"ranges only, which an index finds: {fall('4x4', unindexed=False)} and {kept(unindexed=False)}. Query partitions do "
            f"not divide these ({fall('4x1', unindexed=False)} with 4 x 1). A write that wakes a cell alone costs "
            f"{model['us_of_a_write_that_wakes_the_cell_alone']:.0f} us instead of {model['read_us']:.0f} us",
        )
    ]
