"""The papers' measurements of the matching grid (InvaliDB, PVLDB 2020, section 6) on this machine.

(a) queries sustained at 1,000 writes/s, and (b) writes/s sustained with 1,000 queries; both under bounds of 20, 30, 50 and 100
ms on the 99th percentile; (c) latency as in their Table 3; (d) the same work spread over 1, 10 and 100 collections, each of its
own tenant. For grids of 1x1, 2x1, 1x2 and 2x2 cells (query x write partitions), beside a bare Redis round trip.

Every cell has the same load. In (a) the grid gets 1,000 writes/s for each write partition, in (b) 1,000 queries for each query
partition. The tried loads begin there and are multiplied alike, up to the same total. Bars side by side therefore compare equal
loads of a cell. Scaling is not visible with fewer cores than cells and client need: see benchmarks/cell_cost.py.

Grids run on Spark, as in production; one is measured as plain processes as well, to tell what Spark itself costs.
Latency is measured from before a write is appended to its pipeline until its notification has been read by the
client, as in the papers; the rows "from MongoDB" count from the acknowledged write and include change stream and ingest.
As in the papers, at most a thousand queries are matched, each once, spread evenly over an experiment. An experiment takes
seconds here instead of a minute, so there are more notifications a second. `queries` stay active all the time; the matched
queries come on top.

The one client reads the notification pipelines of all tenants; in production each app process reads its own.

Client, Redis, MongoDB and grid share the machine's cores; "cores_used_by_others" says what else was going on.

Run: python -m benchmarks.invalidb_scalability [--quick] [--grids 1x1,2x2]
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pymongo

from benchmarks import harness
from benchmarks.scalability import bare, grids, plots
from benchmarks.scalability.client import client
from benchmarks.scalability.database import DatabaseWriter
from benchmarks.scalability.experiment import Bench, Effort, Point, table
from benchmarks.scalability.grids import Grid
from benchmarks.scalability.workload import MEASURED_AN_EXPERIMENT, Collections
from quaestor.errors import DependencyError
from quaestor.model import GridShape
from quaestor.testing import reaper, servers

GRIDS: Final = ("1x1", "2x1", "1x2", "2x2")
FIXED: Final = 1_000
"""Queries in (b), writes/s in (a)."""
FULL: Final = Effort(
    seconds=5,
    least_seconds=3,
    measured=MEASURED_AN_EXPERIMENT,
    attempts=2,
    bisections=2,
    budget_s=840,
    reserve_s=95,
    factor=2,
    spreads=(1, 10, 100),
    most_queries=1_000_000,
    most_writes_hz=32_000,
)
QUICK: Final = Effort(
    seconds=3,
    least_seconds=2,
    measured=300,
    attempts=2,
    bisections=0,
    budget_s=215,
    reserve_s=45,
    factor=4,
    spreads=(1, 100),
    most_queries=100_000,
    most_writes_hz=16_000,
)
BARE_RATES: Final = (1_000, 4_000, 16_000, 32_000)
FROM_DATABASE_HZ: Final = (1_000, 4_000, 10_000)
"""Writes/s, with everything included."""
FROM_DATABASE: Final = "from MongoDB"
COLUMNS: Final = (
    "kind", "grid", "queries", "writes_per_s", "collections", "mean_ms", "sd_ms", "p50_ms", "p99_ms", "max_ms",
    "p50_over_bare", "p99_over_bare", "lost", "cores_used_by_others", "what",
)  # fmt: skip


class Run:
    """One run of everything; `result` grows."""

    def __init__(self, effort: Effort, redis_url: str, mongo_url: str, folder: Path) -> None:
        self.effort = effort
        self.redis_url = redis_url
        self.mongo_url = mongo_url
        self.folder = folder
        self.bare: dict[int, dict[str, float]] = {}
        self.bare_beside: list[dict[str, float]] = []
        self.points: list[Point] = []
        self.table_3: list[Point] = []
        self.reads: dict[str, dict[str, int]] = {}
        self.writes: dict[str, dict[str, int]] = {}
        self.memory: dict[str, float] = {}
        self.failures: list[str] = []

    def measure_bare(self) -> None:
        for rate_hz in BARE_RATES:
            latencies, achieved_hz = bare.round_trips(self.redis_url, rate_hz=rate_hz, seconds=2)
            self.bare[rate_hz] = harness.summary(latencies) | {"achieved_writes_per_s": round(achieved_hz)}
            print(f"bare Redis at {rate_hz}/s: {self.bare[rate_hz]}", flush=True)

    def measure_bare_again(self) -> None:
        """Beside each grid: the machine may have become busier or idler."""
        latencies, _ = bare.round_trips(self.redis_url, rate_hz=FIXED, seconds=2)
        self.bare_beside.append(harness.summary(latencies))
        self.bare[FIXED] = self.bare_beside[-1] | {"achieved_writes_per_s": FIXED}

    def on_spark(self, shape: GridShape, *, until_s: float) -> None:
        """Everything, for one grid."""
        name = f"{shape.query_partitions}x{shape.write_partitions}"
        with (
            grids.on_spark(self.folder / name, self.redis_url, self.mongo_url, f"bench-{name}", shape) as grid,
            client(self.redis_url, grid.deployment) as measuring,
            closing(DatabaseWriter(self.mongo_url)) as writer,
        ):
            self.measure_bare_again()
            Bench(grid, measuring, self.effort, self.bare, until_s=until_s).point(
                queries=FIXED, rate_hz=FIXED
            )  # warms up
            bench = Bench(grid, measuring, self.effort, self.bare, until_s=until_s)
            try:
                self._everything(bench, grid, writer.pipe if name == "1x1" else None)
            finally:
                self.points += bench.points

    def as_processes(self, *, until_s: float) -> None:
        """One cell without Spark: the writes it sustains."""
        shape = GridShape(query_partitions=1, write_partitions=1)
        with (
            grids.as_processes(self.redis_url, "bench-processes", shape) as grid,
            client(self.redis_url, grid.deployment) as measuring,
        ):
            self.measure_bare_again()
            bench = Bench(grid, measuring, self.effort, self.bare, until_s=until_s)
            try:
                sustained = bench.sustained_writes(queries=FIXED, least=FIXED)
                self.writes[f"{grid.name} (processes)"] = sustained
                self.table_3.append(bench.points[0])
            finally:
                self.points += bench.points

    def _everything(self, bench: Bench, grid: Grid, database: Connection | None) -> None:
        effort, name = self.effort, grid.name
        queries, rate_hz = FIXED * grid.shape.query_partitions, FIXED * grid.shape.write_partitions
        self.writes[name] = bench.sustained_writes(queries=queries, least=rate_hz)
        self.table_3.append(bench.points[0])
        for count in effort.spreads:
            bench.point(queries=FIXED, rate_hz=FIXED, collections=Collections(count=count))
        if database is not None:
            for written_hz in FROM_DATABASE_HZ:
                bench.point(queries=FIXED, rate_hz=written_hz, instead=database, what=FROM_DATABASE)
        self.reads[name] = bench.sustained_queries(rate_hz=rate_hz, least=queries)
        self.table_3.append(bench.points[-1])
        if database is not None:
            bench.point(queries=grid.held, rate_hz=FIXED, instead=database, what=FROM_DATABASE)
        self.memory[name] = round(grid.memory_bytes() / 1e9, 2)

    def result(self, seconds: float) -> dict[str, Any]:
        everything = [point for point in self.points if "what" in point]
        spread = [
            point for point in self.points if point["queries"] == point["writes_per_s"] == FIXED and "what" not in point
        ]
        return {
            "what": "ms from before the append to the notification read by the client; client, Redis, MongoDB and grid on one "
            "machine; 'from MongoDB': from the acknowledged write, change stream and ingest included",
            "kinds": {"spark": "cells as Spark tasks", "processes": "the same cells as plain Python processes"},
            "fixed_load": {
                "writes": f"{FIXED:,} writes/s for each write partition",
                "queries": f"{FIXED:,} active queries for each query partition",
            },
            "notifications": self.effort.measured,
            "took_s": round(seconds),
            "bare_redis": {
                "what": "XADD by one process, read with XREAD by another; ratios are against the nearest rate",
                "round_trips": {str(rate): figures for rate, figures in self.bare.items()},
                "at_1000_beside_each_grid": self.bare_beside,
            },
            "read_scalability": self.reads,
            "write_scalability": self.writes,
            "table_3": self.table_3,
            "from_mongodb": everything,
            "tenants": spread,
            "memory_gb_at_most_queries": self.memory,
            "aims": _aims(self.points),
            "papers": {
                "read_scalability_20_ms": {"1x1": 1_500, "16x1": 23_500},
                "write_scalability": {"1x16": 26_000},
                "table_3": {"1x1, 1,500 queries": {"mean_ms": 9.4, "sd_ms": 3.4, "p99_ms": 17.4, "max_ms": 45}},
            },
            "failures": self.failures,
            "points": self.points,
        }


def _aims(points: list[Point]) -> dict[str, Any]:
    def best(queries: int, rate_hz: int, figure: str) -> float | None:
        values = [
            point[figure]
            for point in points
            if point["queries"] >= queries
            and point["writes_per_s"] >= rate_hz
            and "what" not in point
            and not point["lost"]
        ]
        return min(values, default=None)

    return {
        "p99_ms of 1,000,000 queries at 1,000 writes/s (aim: 20)": best(1_000_000, 1_000, "p99_ms"),
        "p99_ms of 1,000 queries at 10,000 writes/s (aim: 20)": best(1_000, 10_000, "p99_ms"),
        "p50_ms at 1,000 writes/s (aim: 3)": best(1_000, 1_000, "p50_ms"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about 4 minutes, up to 100,000 queries, nothing is saved")
    parser.add_argument("--grids", default=",".join(GRIDS))
    arguments = parser.parse_args()
    begun_s = time.monotonic()
    reaper.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with ExitStack() as stack:
        stack.callback(reaper.sweep)
        mongo = stack.enter_context(servers.running(servers.mongod_server, "mongod"))
        # Without an append-only file, whose rewriting would be measured as well; the papers' Redis ran alike.
        redis = stack.enter_context(servers.running(partial(servers.redis_server, persistent=False), "valkey"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quaestor-bench-")))
        _create_collections(mongo.url)
        run = Run(QUICK if arguments.quick else FULL, redis.url, mongo.url, folder)
        run.measure_bare()
        names = arguments.grids.split(",")
        end_s = begun_s + run.effort.budget_s

        for done, name in enumerate(names):
            query_partitions, write_partitions = map(int, name.split("x"))
            shape = GridShape(query_partitions=query_partitions, write_partitions=write_partitions)
            try:
                run.on_spark(shape, until_s=end_s - run.effort.reserve_s * (len(names) - done))
            except (TimeoutError, DependencyError) as error:
                run.failures.append(f"{name}: {error}")
                print(run.failures[-1], flush=True)
            _forget(redis.url)
        run.as_processes(until_s=end_s)
    result = run.result(time.monotonic() - begun_s)
    print(table(run.points, COLUMNS))
    if arguments.quick:
        print(result["aims"])
        return
    harness.save("invalidb_scalability", result)
    plots.draw(harness.RESULTS, result)


def _create_collections(mongo_url: str) -> None:
    """Before anything is registered: a collection that comes into being is an event of its own."""
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as database:
        collections = Collections()
        name, _, collection = collections.namespace(0).partition(".")
        database[name].create_collection(collection)


def _forget(redis_url: str) -> None:
    """Drop the data of the last grid in Redis: a gigabyte."""
    import redis

    with redis.Redis.from_url(redis_url) as server:
        server.flushall()


if __name__ == "__main__":
    main()
